//! The flags of `jitney simulate` and `jitney plan`. Those that describe a workload are also the
//! keys of a workload file.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Deserializer};

use crate::units::{Millis, Span};

/// `jitney simulate`
#[derive(Debug, Default, Args)]
#[command(after_help = SIMULATE_EXAMPLES)]
pub struct SimulateFlags {
    /// Read the workload from this file (yaml); its keys are the flags of the workload, which win
    #[arg(long, value_name = "FILE")]
    pub workload: Option<PathBuf>,
    /// What happens.
    #[command(flatten)]
    pub options: Workload,
    /// A policy to compare, several times or with / between; see below [default: all]
    #[arg(long, value_name = "POLICY", value_delimiter = '/')]
    pub policy: Vec<String>,
    /// Draw the result into this file (svg)
    #[arg(long, value_name = "FILE")]
    pub draw: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What happens in a simulated world.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Time of a batch: 5+0.2b is 5 ms and 0.2 ms per item; or a file with size,ms lines or the
    /// JSON a server exports [default: 5+0.2b]
    #[arg(long, value_name = "CURVE")]
    pub curve: Option<String>,
    /// Largest batch [default: 64, or the largest measured]
    #[arg(long, value_name = "N")]
    pub max_batch: Option<usize>,
    /// Sizes at which the model runs, such as 1,2,4,8: a batch runs at the next larger one
    /// [default: any]
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub sizes: Vec<u32>,
    /// Time to prepare a batch, written as --curve, on workers that prepare one batch while they run
    /// another; --curve is then the time of the model. Only ours gives them several batches
    #[arg(long, value_name = "CURVE")]
    pub prepare: Option<String>,
    /// Batches that such a worker may hold [default: 3]
    #[arg(long, value_name = "N")]
    pub slots: Option<usize>,
    /// How many times as long both take while they overlap [default: 1]
    #[arg(long, value_name = "FACTOR")]
    pub contention: Option<f64>,
    /// Workers [default: 1]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Requests per second; several with a comma in between, or none for 0.1 to 3 times what the
    /// workers can carry
    #[arg(long, value_name = "RATE", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub rate: Vec<f64>,
    /// How requests come: poisson, even, bursts (four times the rate for half a second), onoff, or
    /// hyper (gaps with twice the deviation) [default: poisson]
    #[arg(long, value_name = "PROCESS")]
    pub arrivals: Option<String>,
    /// Play recorded arrivals: a CSV of seconds, or an access log. Without --rate at their own speed
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Instead of --rate: so many clients that wait for their answer; several with a comma
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = ["rate", "trace"])]
    #[serde(deserialize_with = "one_or_many")]
    pub clients: Vec<usize>,
    /// Time a client thinks between answer and next request, in the mean [default: 200us]
    #[arg(long, value_name = "TIME")]
    pub think: Option<Millis>,
    /// How that time is spread: fixed, exponential, or heavy (most quick, a few very long)
    /// [default: exponential]
    #[arg(long, value_name = "KIND")]
    pub think_kind: Option<String>,
    /// Requests come over connections that are used again: a pool keeps up to so many free ones. A
    /// request that finds none opens another, which is closed after its answer. Without it every
    /// request of --rate has a connection of its own, and every client keeps its own
    #[arg(long, value_name = "SIZE")]
    pub pool: Option<usize>,
    /// Which free connection is used: last-freed (urllib3, Go, nginx), longest-free, random, or
    /// shared (one connection carries all requests: HTTP/2, gRPC) [default: last-freed]
    #[arg(long, value_name = "ORDER")]
    pub pool_order: Option<String>,
    /// So many pools, as of so many client processes; each request takes one by chance [default: 1]
    #[arg(long, value_name = "N")]
    pub pools: Option<usize>,
    /// A request that finds no free connection waits for one, as in aiohttp
    #[arg(long)]
    pub pool_waits: bool,
    /// Time to the answer, such as 50ms; several with a comma for a mix [default: 50ms]
    #[arg(long, value_name = "TIME", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub deadline: Vec<Millis>,
    /// Shares of tenants, such as 95,5 [default: one tenant]
    #[arg(long, value_name = "SHARE", value_delimiter = ',')]
    #[serde(deserialize_with = "one_or_many")]
    pub tenants: Vec<f64>,
    /// Jitter of batch times: 0.05 is five percent [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub jitter: Option<f64>,
    /// Share of batches that take twice as long [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub outliers: Option<f64>,
    /// From a time on batches take longer: 1.5@10s
    #[arg(long, value_name = "FACTOR@TIME")]
    pub slow_down: Option<String>,
    /// A worker dies, and comes back if a second time is given: 5s or 5s..8s
    #[arg(long, value_name = "TIME")]
    pub lose_worker: Option<String>,
    /// Requests to play [default: 20000]
    #[arg(long, value_name = "N")]
    pub requests: Option<usize>,
    /// The seed of all chance; the same seed gives the same result [default: 42]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// In a file a list of one may be written without brackets.
fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany<T> {
        Many(Vec<T>),
        One(T),
    }
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::Many(all) => all,
        OneOrMany::One(one) => vec![one],
    })
}

const SIMULATE_EXAMPLES: &str = "\
Examples:
  jitney simulate --curve 5+0.2b --rate 3000 --deadline 50ms
  jitney simulate --curve 5+1b --workers 4 --deadline 25ms --draw overload.svg
  jitney simulate --curve 5+0.1b --clients 1,2,4,8,16,32,64 --policy adaptive --policy window:5
  jitney simulate --curve measured.csv --trace access.log
  jitney simulate --curve 5+0.2b --max-batch 32 --rate 300,1000,2000 --pool 2048 --policy adaptive/eager
  jitney simulate --curve 5+0.2b --clients 16 --think 2ms --think-kind heavy --pool 64
  jitney simulate --curve 2.4+0.11b --prepare 0.4+0.05b --contention 1.2 --sizes 1,8,32,64,128 \
      --max-batch 128 --clients 1,16,128,384 --deadline 1s --policy adaptive

Policies:
  adaptive              nothing to set
  opportunistic         an idle worker takes what is there; also called eager
  window:MS             a batch leaves when its oldest request has waited so long

Connections: a server sees connections and not callers, and the adaptive policy must find out which
requests come because others were answered. --rate with --pool are independent requests over
connections that were answered a moment ago; --clients with --pool are clients behind a proxy.
With --json every row has mean_ms, p50_ms, p99_ms and mean_batch.

One rate draws the share answered within each time, several draw goodput by rate, clients draw
throughput by their number. All of it is played by the very code that serves. A curve file has lines
of size,ms or is JSON of the form {\"curve\": [{\"size\": 1, \"ms\": 5.2}, ...]}.";

/// `jitney plan`
#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub struct PlanFlags {
    /// Put this model of a running server under load and measure its curve, such as
    /// http://127.0.0.1:8080/predictions/MODEL; the last part of the path is the model's name
    #[arg(value_name = "URL", conflicts_with = "curve")]
    pub url: Option<String>,
    /// Time of a batch: 5+0.2b is 5 ms and 0.2 ms per item; or a file with size,ms lines or the
    /// JSON a server exports
    #[arg(long, value_name = "CURVE", required_unless_present = "url")]
    pub curve: Option<String>,
    /// Requests per second [default: those of the trace]
    #[arg(long, value_name = "RATE", required_unless_present = "trace")]
    pub rate: Option<f64>,
    /// Time within which 99 of 100 must be answered, such as 100ms
    #[arg(long, value_name = "TIME")]
    pub p99: Millis,
    /// The share that must be, if it is not 0.99
    #[arg(long, value_name = "SHARE", default_value_t = 0.99)]
    pub share: f64,
    /// Play recorded arrivals: a CSV of seconds, or an access log
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// How requests come, without a trace: poisson, even, bursts, onoff or hyper
    #[arg(long, value_name = "PROCESS", default_value = "poisson", conflicts_with = "trace")]
    pub arrivals: String,
    /// Largest batch to consider [default: 64, or the largest measured]
    #[arg(long, value_name = "N")]
    pub max_batch: Option<usize>,
    /// Sizes at which the model runs, such as 1,2,4,8 [default: any]
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    pub sizes: Vec<u32>,
    /// Time to prepare a batch, on workers that prepare one batch while they run another; --curve is
    /// then the time of the model
    #[arg(long, value_name = "CURVE")]
    pub prepare: Option<String>,
    /// How many times as long both take while they overlap [default: 1]
    #[arg(long, value_name = "FACTOR")]
    pub contention: Option<f64>,
    /// Most workers to consider
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub max_workers: usize,
    /// Jitter of batch times: 0.05 is five percent
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub jitter: f64,
    /// Requests to play in every trial
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub requests: usize,
    /// Print JSON instead of words
    #[arg(long)]
    pub json: bool,
    /// Write the proposal into this file, as configuration for jitney serve --config
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write a report into this file: one HTML page with the curve and the latencies by load
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The body of the requests that are sent to the URL
    #[arg(
        short = 'b',
        long,
        value_name = "TEXT",
        requires = "url",
        conflicts_with = "body_file",
        help_heading = "Measurement"
    )]
    pub body: Option<String>,
    /// A file with the body, or a folder of them; several are sent in turn
    #[arg(short = 'f', long, value_name = "PATH", num_args = 1.., requires = "url", help_heading = "Measurement")]
    pub body_file: Vec<PathBuf>,
    /// A header, 'name: value'; may be given several times
    #[arg(
        short = 'H',
        long,
        value_name = "HEADER",
        requires = "url",
        help_heading = "Measurement"
    )]
    pub header: Vec<String>,
    /// How long each number of clients asks
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        requires = "url",
        help_heading = "Measurement"
    )]
    pub step: Span,
    /// Management address of the server [env: JITNEY_URL] [default: http://127.0.0.1:8081]
    #[arg(long, value_name = "URL", requires = "url", help_heading = "Measurement")]
    pub management: Option<String>,
}

const PLAN_EXAMPLES: &str = "\
Examples:
  jitney plan http://127.0.0.1:8080/predictions/m --body-file cat.jpg --rate 500 --p99 100ms
  jitney plan --curve 5+0.2b --rate 500 --p99 100ms --write jitney.yaml --report plan.html
  jitney plan --curve measured.csv --rate 2000 --p99 50ms --arrivals bursts
  jitney plan --curve measured.csv --trace access.log --p99 100ms

Every combination is played three times with different chance by the code that serves. A curve file
has lines of size,ms or is JSON of the form {\"curve\": [{\"size\": 1, \"ms\": 5.2}, ...]}.";
