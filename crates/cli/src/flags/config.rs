//! The flags of `jitney config`: those of the command it explains, and one of its own.

use clap::{Args, Subcommand};

use super::serve::ServeFlags;
use super::torchserve::TorchserveFlags;

/// `jitney config`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ConfigFlags {
    /// Print JSON, one object per value
    #[arg(long, global = true)]
    pub json: bool,
    /// The command whose configuration is printed; `serve` by default.
    #[command(subcommand)]
    pub of: Option<ConfigOf>,
}

/// The commands that have a configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigOf {
    /// What `jitney serve` would use with these flags
    Serve(ServeFlags),
    /// What `jitney torchserve` would use with these flags
    Torchserve(TorchserveFlags),
}

const EXAMPLES: &str = "\
Examples:
  jitney config serve resnet.mar --port 9000
  jitney config torchserve --ts-config config.properties --json

Nothing is started. Each line is a value and where it comes from: flag, environment, file with its
line, archive, or default.";
