//! `jitney containerize`.

use std::path::PathBuf;

use clap::Args;

/// `jitney containerize`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ContainerizeFlags {
    /// What the image serves, as for jitney serve; files are in this folder or below
    #[arg(value_name = "MODEL", required = true)]
    pub models: Vec<String>,
    /// Name of the image [default: the folder's]
    #[arg(long, value_name = "NAME")]
    pub tag: Option<String>,
    /// Image with Python that it stands on
    #[arg(long, value_name = "IMAGE", default_value = "python:3.11-slim-bookworm")]
    pub base: String,
    /// What pip installs into it [default: requirements.txt, if there is one]
    #[arg(long, value_name = "FILE")]
    pub requirements: Option<PathBuf>,
    /// Write the files alone, also where buildah is installed
    #[arg(long)]
    pub no_build: bool,
    /// Replace a Dockerfile that is there
    #[arg(long)]
    pub force: bool,
}

const EXAMPLES: &str = "\
Examples:
  jitney containerize app.py:Classifier
  jitney containerize model.onnx --tag registry.example.com/model:1
  jitney containerize app.py:X --no-build && docker build -t x .";
