//! `jitney doctor`.

use std::path::PathBuf;

use clap::Args;

use super::remote::ServerFlags;
use super::settings::SettingFlags;

/// `jitney doctor`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorFlags {
    /// Models that are to be served: files, directories or module:object
    #[arg(value_name = "MODEL")]
    pub models: Vec<String>,
    /// The jitney.yaml of the server [env: JITNEY_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Python for Python models [default: as for jitney serve]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Where models from URLs are kept
    #[arg(long, value_name = "DIR")]
    pub model_store: Option<PathBuf>,
    /// Where the server is to listen.
    #[command(flatten)]
    pub addresses: SettingFlags<false>,
    /// Which server, if one runs.
    #[command(flatten)]
    pub server: ServerFlags,
}

const EXAMPLES: &str = "\
Examples:
  jitney doctor
  jitney doctor resnet.mar model.onnx
  jitney doctor --json

Every finding is ok, a note or a problem, and says what to do. Exit codes: 0 there is no problem,
1 there is one. The settings are those that jitney serve would have here.";
