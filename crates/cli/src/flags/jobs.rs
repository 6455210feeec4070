//! `jitney jobs`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::remote::ServerFlags;

/// `jitney jobs`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct JobsFlags {
    /// What to do.
    #[command(subcommand)]
    pub command: JobsCommand,
}

/// The commands of `jitney jobs`.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// Ask for a prediction that is answered later, and print the id of its job
    Submit(SubmitFlags),
    /// List the jobs of this key, the youngest first
    List(ListJobsFlags),
    /// Say how far a job is
    Show(OneJobFlags),
    /// Wait until jobs have ended; 1 if one of them has failed
    Wait(SomeJobsFlags),
    /// Wait until a job has ended, and print what the prediction answered; 1 if that is an error
    Result(ResultFlags),
    /// Forget jobs with their requests and results; those that run are broken off
    Delete(SomeJobsFlags),
}

/// Which server, and how it is asked. Jobs belong to the address that answers predictions.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Server")]
pub struct JobServerFlags {
    /// Inference address of the server: http://HOST:PORT, https://HOST:PORT or unix:/PATH
    /// [env: JITNEY_INFERENCE_URL] [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Key of a server with keys or tokens [env: JITNEY_TOKEN]
    #[arg(long, value_name = "KEY", conflicts_with = "key_file", allow_hyphen_values = true)]
    token: Option<String>,
    /// The server's key_file.json, whose inference key is used [default: the one in the current
    /// directory, for a server on this machine]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Certificate and key, in one PEM file, for a server that asks its clients for one
    /// [env: JITNEY_CLIENT_CERT]
    #[arg(long, value_name = "FILE")]
    client_cert: Option<PathBuf>,
    /// Print JSON on stdout
    #[arg(long)]
    pub json: bool,
}

impl From<&JobServerFlags> for ServerFlags {
    fn from(flags: &JobServerFlags) -> Self {
        let JobServerFlags { url, token, key_file, client_cert, json } = flags.clone();
        Self { url, token, key_file, client_cert, json }
    }
}

/// `jitney jobs submit`
#[derive(Debug, Args)]
pub struct SubmitFlags {
    /// The model; without a version its default one
    #[arg(value_name = "MODEL[/VERSION]")]
    pub model: String,
    /// What the model gets: a text, @FILE, or @- for what is read from stdin
    #[arg(short, long, value_name = "DATA", default_value = "", hide_default_value = true)]
    pub data: String,
    /// Its type [default: application/json where it is JSON, else application/octet-stream]
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Endpoint of a definition
    #[arg(long, value_name = "NAME")]
    pub endpoint: Option<String>,
    /// The same key with the same request finds the job that was made before
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// URL to tell when the job has ended; the server's webhook_urls must allow it
    #[arg(long, value_name = "URL")]
    pub webhook: Option<String>,
    /// Which server.
    #[command(flatten)]
    pub server: JobServerFlags,
}

/// `jitney jobs list`
#[derive(Debug, Args)]
pub struct ListJobsFlags {
    /// Only jobs of this state
    #[arg(long, value_name = "STATE")]
    pub state: Option<JobWord>,
    /// Only jobs of this model
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Jobs of a page
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub limit: u8,
    /// The page after another one, which tells its name
    #[arg(long, value_name = "PAGE")]
    pub page: Option<String>,
    /// Which server.
    #[command(flatten)]
    pub server: JobServerFlags,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum JobWord {
    /// It waits for its turn.
    Queued,
    /// It is being answered.
    Running,
    /// It was answered.
    Succeeded,
    /// It was answered with an error.
    Failed,
    /// Its owner ended it.
    Cancelled,
}

/// `jitney jobs show`
#[derive(Debug, Args)]
pub struct OneJobFlags {
    /// Id of the job
    #[arg(value_name = "ID")]
    pub job: String,
    /// Which server.
    #[command(flatten)]
    pub server: JobServerFlags,
}

/// `jitney jobs wait` and `jitney jobs delete`
#[derive(Debug, Args)]
pub struct SomeJobsFlags {
    /// Ids of the jobs
    #[arg(value_name = "ID", required = true)]
    pub jobs: Vec<String>,
    /// Which server.
    #[command(flatten)]
    pub server: JobServerFlags,
}

/// `jitney jobs result`
#[derive(Debug, Args)]
pub struct ResultFlags {
    /// The job.
    #[command(flatten)]
    pub one: OneJobFlags,
    /// Write the answer to this file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  jitney jobs submit resnet -d @kitten.jpg
  jitney jobs result 8f14e45fceea167a5a36dedd4bea2543 -o answer.json
  jitney jobs list --state failed --model resnet
  jitney jobs wait $(jitney jobs submit resnet -d @kitten.jpg)
  jitney jobs delete 8f14e45fceea167a5a36dedd4bea2543";
