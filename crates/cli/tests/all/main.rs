//! The real binary, from the outside: what it prints, what it exits with, what it leaves behind.

mod archive;
mod background;
mod box_;
mod config;
mod demo;
mod golden;
mod refusals;
mod snapshots;
