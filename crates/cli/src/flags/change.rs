//! The commands that change a running server: `jitney register`, `scale`, `set`, `default`, `traffic` and
//! `unregister`.

use clap::Args;

use super::remote::ServerFlags;
use super::settings::ParameterFlags;

/// `jitney register`
#[derive(Debug, Args)]
#[command(after_help = REGISTER_EXAMPLES)]
pub struct RegisterFlags {
    /// The model: a file of the server's model store, or a URL that the server allows
    #[arg(value_name = "URL_OR_FILE")]
    pub source: String,
    /// Name of the model [default: what the archive says, else the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Handler instead of the archive's, such as handler.py:handle
    #[arg(long, value_name = "HANDLER")]
    pub handler: Option<String>,
    /// Checksum that the archive must have
    #[arg(long, value_name = "HEX")]
    pub sha256: Option<String>,
    /// Do not wait until the workers are loaded
    #[arg(long)]
    pub no_wait: bool,
    /// Take the place of the same version of the model, or of its default one, which ends when the new one is ready;
    /// with "stop" it ends first, where there is no memory for both
    #[arg(long, value_name = "stop", num_args = 0..=1, default_missing_value = "true", require_equals = true, conflicts_with = "no_wait")]
    pub replace: Option<String>,
    /// Which server.
    #[command(flatten)]
    pub server: ServerFlags,
    /// How it runs.
    #[command(flatten)]
    pub parameters: ParameterFlags,
}

const REGISTER_EXAMPLES: &str = "\
Examples:
  jitney register resnet.mar
  jitney register resnet.mar --name resnet --workers 2 --batch-size 16 --max-latency-ms 50
  jitney register resnet-2.mar --replace    in the place of the one that is served
  jitney register https://models.example.org/bert.mar --no-wait

A model that cannot be loaded is not registered, unless --no-wait is given. Without --workers it
has as many workers as the server gives to new models, which may be none.";

/// `jitney scale`
#[derive(Debug, Args)]
#[command(after_help = SCALE_EXAMPLES)]
pub struct ScaleFlags {
    /// The model; without a version its default one
    #[arg(value_name = "MODEL[/VERSION]")]
    pub model: String,
    /// So many workers; "auto" lets their number follow the load again
    #[arg(value_name = "N|auto", value_parser = worker_count, required_unless_present_any = ["workers", "min_workers", "max_workers"], conflicts_with_all = ["workers", "min_workers", "max_workers"])]
    pub count: Option<WorkerCount>,
    /// Number of workers
    #[arg(long, value_name = "N", conflicts_with_all = ["min_workers", "max_workers"])]
    pub workers: Option<u32>,
    /// Fewest workers
    #[arg(long, value_name = "N")]
    pub min_workers: Option<u32>,
    /// Most workers
    #[arg(long, value_name = "N")]
    pub max_workers: Option<u32>,
    /// Do not wait until the workers are loaded
    #[arg(long)]
    pub no_wait: bool,
    /// Which server.
    #[command(flatten)]
    pub server: ServerFlags,
}

/// What `jitney scale` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerCount {
    /// This number, whatever the load.
    Pinned(u32),
    /// As many as the load needs.
    Auto,
}

fn worker_count(text: &str) -> Result<WorkerCount, String> {
    match text.parse() {
        Ok(count) => Ok(WorkerCount::Pinned(count)),
        Err(_) if text == "auto" => Ok(WorkerCount::Auto),
        Err(_) => Err("a number of workers, or auto".to_owned()),
    }
}

const SCALE_EXAMPLES: &str = "\
Examples:
  jitney scale resnet 4
  jitney scale resnet auto                  as many as the load needs
  jitney scale resnet/2.0 0
  jitney scale resnet --min-workers 2 --max-workers 8 --no-wait";

/// `jitney set`
#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLES)]
pub struct SetFlags {
    /// The model; without a version its default one
    #[arg(value_name = "MODEL[/VERSION]")]
    pub model: String,
    /// Settings that may change while the model runs
    #[arg(value_name = "SETTING=VALUE", required = true)]
    pub changes: Vec<String>,
    /// Only for this endpoint of a definition
    #[arg(long, value_name = "NAME")]
    pub endpoint: Option<String>,
    /// Which server.
    #[command(flatten)]
    pub server: ServerFlags,
}

const SET_EXAMPLES: &str = "\
Examples:
  jitney set resnet max_latency_ms=50
  jitney set resnet/2.0 max_batch_size=16 queue=500
  jitney models resnet                      which settings there are, and their values";

/// `jitney default`
#[derive(Debug, Args)]
#[command(after_help = DEFAULT_EXAMPLES)]
pub struct DefaultFlags {
    /// The model
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// The version that answers requests which name none
    #[arg(value_name = "VERSION")]
    pub version: String,
    /// Which server.
    #[command(flatten)]
    pub server: ServerFlags,
}

const DEFAULT_EXAMPLES: &str = "\
Examples:
  jitney default resnet 2.0";

/// `jitney traffic`
#[derive(Debug, Args)]
#[command(after_help = TRAFFIC_EXAMPLES)]
pub struct TrafficFlags {
    /// The model
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// The share of each version, in percent or any unit; NAME or NAME/VERSION is another model;
    /// without shares nothing is changed
    #[arg(value_name = "VERSION=SHARE", value_parser = share)]
    pub shares: Vec<(String, f64)>,
    /// What keeps a client at its version: header:NAME, cookie:NAME or key [default: nothing does]
    #[arg(long, value_name = "WHAT")]
    pub sticky: Option<String>,
    /// Take a version's share away when it is worse than the default one, or end a shadow: errors=+1%, p99=1.5x, different=5%, after=200
    #[arg(long = "return", value_name = "RULE,...", value_delimiter = ',', value_parser = rule)]
    pub returns: Vec<(String, String)>,
    /// Let its share grow while it is not worse, such as "10% 30% 60% 100% every 10m"
    #[arg(long, value_name = "STEPS", requires = "returns")]
    pub promote: Option<String>,
    /// Send a version copies of so many percent of the requests and compare its answers, which nobody gets
    #[arg(long, value_name = "VERSION=SHARE", value_parser = share)]
    pub shadow: Option<(String, f64)>,
    /// When two answers are the same: equal, numbers(TOLERANCE), top1 or model(NAME) [default: equal]
    #[arg(long, value_name = "RULE", requires = "shadow")]
    pub same: Option<String>,
    /// Keep so many of the first pairs of answers that differ for an hour, for GET /models/MODEL/VERSION/shadow
    #[arg(long, value_name = "N", requires = "shadow")]
    pub shadow_samples: Option<u32>,
    /// Let the default version answer everything again
    #[arg(long, conflicts_with_all = ["shares", "shadow", "sticky", "returns"])]
    pub off: bool,
    /// Which server.
    #[command(flatten)]
    pub server: ServerFlags,
}

fn share(text: &str) -> Result<(String, f64), String> {
    let share = text.rsplit_once('=').and_then(|(version, share)| {
        Some((version.to_owned(), share.trim_end_matches('%').parse().ok()?))
    });
    share.ok_or_else(|| "a version and its share, such as 2.0=10".to_owned())
}

fn rule(text: &str) -> Result<(String, String), String> {
    let rule = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    rule.ok_or_else(|| "rules such as errors=+1%,p99=1.5x,after=200".to_owned())
}

const TRAFFIC_EXAMPLES: &str = "\
Examples:
  jitney traffic resnet 1.0=90 2.0=10 --sticky header:x-user
  jitney traffic resnet 1.0=90 2.0=10 --return errors=+1%,p99=1.5x --promote '10% 50% 100% every 10m'
  jitney traffic resnet --shadow 2.0=100 --same top1 --return different=5%
  jitney traffic resnet                     how it is now
  jitney traffic resnet --off               the default version answers everything again";

/// `jitney unregister`
#[derive(Debug, Args)]
#[command(after_help = UNREGISTER_EXAMPLES)]
pub struct UnregisterFlags {
    /// The model; without a version its default one
    #[arg(value_name = "MODEL[/VERSION]")]
    pub model: String,
    /// Do not ask; without a terminal it never asks
    #[arg(short, long)]
    pub yes: bool,
    /// Which server.
    #[command(flatten)]
    pub server: ServerFlags,
}

const UNREGISTER_EXAMPLES: &str = "\
Examples:
  jitney unregister resnet/1.0
  jitney unregister resnet --yes";
