//! `jitney onnx`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `jitney onnx`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct OnnxFlags {
    /// What to do; without it, say which engine runs ONNX models here.
    #[command(subcommand)]
    pub command: Option<OnnxCommand>,
    /// Python whose onnxruntime package counts [default: as for jitney serve]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
}

/// The commands of `jitney onnx`.
#[derive(Debug, Subcommand)]
pub enum OnnxCommand {
    /// Fetch ONNX Runtime from the package registry that pip is told to use
    Install(InstallFlags),
}

/// `jitney onnx install`
#[derive(Debug, Default, Args)]
pub struct InstallFlags {
    /// Directory for the library [default: ~/.cache/jitney, where servers look for it]
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Version to fetch [default: the newest]
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  jitney onnx                               which engine, which library, which providers
  jitney onnx install
  jitney onnx install --to /opt/onnxruntime --version 1.31.1";
