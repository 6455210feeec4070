//! The real binary: its output, its exit codes and its files.

mod archive;
mod background;
mod config;
mod demo;
mod errors;
mod golden;
mod sandbox;
mod snapshots;
