//! `jitney inspect`.

use std::path::PathBuf;

use clap::Args;

/// `jitney inspect`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct InspectFlags {
    /// A file or folder that is to be served, or hf:ORG/NAME
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Load it also if that runs code that is part of it
    #[arg(long)]
    pub trust: bool,
    /// What a model of several uses is for
    #[arg(long, value_name = "TASK")]
    pub task: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Python to run it with [default: as for jitney serve]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  jitney inspect model.pt2
  jitney inspect forest.joblib --trust
  jitney inspect folder --json
  jitney inspect hf:sentence-transformers/all-MiniLM-L6-v2

The status is 1 if something keeps it from being served.";
