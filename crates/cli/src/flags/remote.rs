//! The commands that read from a running server: `jitney status`, `top`, `models` and `logs`, and the
//! flags that all commands against a running server share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Which server, and how it is asked.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerFlags {
    /// Management address of the server: http://HOST:PORT, https://HOST:PORT or unix:/PATH
    /// [env: JITNEY_URL] [default: http://127.0.0.1:8081]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Management key of a server with tokens [env: JITNEY_TOKEN]
    // Keys are base64url, so one in 64 begins with a hyphen.
    #[arg(long, value_name = "KEY", conflicts_with = "key_file", allow_hyphen_values = true)]
    pub token: Option<String>,
    /// The server's key_file.json, which holds the key [default: the one in the current directory,
    /// for a server on this machine]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Certificate and key, in one PEM file, for a server that asks its clients for one
    /// [env: JITNEY_CLIENT_CERT]
    #[arg(long, value_name = "FILE")]
    pub client_cert: Option<PathBuf>,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

/// `jitney status`
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusFlags {
    /// Which server.
    #[command(flatten)]
    pub server: ServerFlags,
}

const STATUS_EXAMPLES: &str = "\
Examples:
  jitney status
  jitney status --url http://gpu-box:8081 --json
  until jitney status >/dev/null 2>&1; do sleep 1; done

Exit codes: 0 the server is ready, 1 it is not, 69 it cannot be reached, 77 it does not take the
token. Rates and latencies are of the last minute; totals count from the registration of the model.";

/// `jitney top`
#[derive(Debug, Args)]
#[command(after_help = TOP_EXAMPLES)]
pub struct TopFlags {
    /// Print one frame as text and end; so it is without a terminal
    #[arg(long)]
    pub once: bool,
    /// Which server.
    #[command(flatten)]
    pub server: ServerFlags,
}

const TOP_EXAMPLES: &str = "\
Examples:
  jitney top
  jitney top --once
  jitney top --json | head -1

Keys: up, down, j, k choose a model; Enter shows it alone; s sorts by the next column; p pauses;
? help; q ends. --json prints one document per second and line, until it is interrupted.";

/// `jitney models`
#[derive(Debug, Args)]
#[command(after_help = MODELS_EXAMPLES)]
pub struct ModelsFlags {
    /// Show this model with its settings, workers and last error
    #[arg(value_name = "MODEL[/VERSION]")]
    pub model: Option<String>,
    /// Which server.
    #[command(flatten)]
    pub server: ServerFlags,
}

const MODELS_EXAMPLES: &str = "\
Examples:
  jitney models
  jitney models resnet
  jitney models resnet/2.0 --json";

/// `jitney logs`
#[derive(Debug, Args)]
#[command(after_help = LOGS_EXAMPLES)]
pub struct LogsFlags {
    /// Go on with new lines until it is interrupted
    #[arg(short, long)]
    pub follow: bool,
    /// Number of last lines to print first
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 200)]
    pub last: u32,
    /// Only lines of this level or a graver one
    #[arg(long, value_name = "LEVEL")]
    pub level: Option<LogLevel>,
    /// Only lines about this model
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Only lines that have this text, such as a request id
    #[arg(long, value_name = "TEXT")]
    pub contains: Option<String>,
    /// Which server.
    #[command(flatten)]
    pub server: ServerFlags,
}

const LOGS_EXAMPLES: &str = "\
Examples:
  jitney logs --lines 50
  jitney logs --follow --level warn
  jitney logs --contains 7d0a3c5e-0d3b-4a55-9b39-0c4d0f6c6a54";

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Something is broken.
    Error,
    /// Somebody should look at it.
    Warn,
    /// What the server does.
    Info,
    /// Why it does it.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The word of the query.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}
