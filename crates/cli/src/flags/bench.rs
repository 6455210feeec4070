//! The flags of `jitney bench`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use jitney_load::{InputTensor, PoolOrder, ThinkTime, ThinkTimeKind};

use crate::units::{Millis, Span};

/// `jitney bench`
#[derive(Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchFlags {
    /// Where to: http://HOST:PORT/PATH, https, or grpc://HOST:PORT/MODEL
    #[arg(value_name = "URL")]
    pub url: String,

    /// Closed loop: so many clients, each sending its next request when the last one is answered
    /// [default: 16]
    #[arg(short, long, value_name = "N", conflicts_with_all = ["rate", "trace", "phase"], help_heading = "Load")]
    pub connections: Option<usize>,
    /// Open loop: so many requests per second, whatever the server does
    #[arg(short, long, value_name = "RATE", help_heading = "Load")]
    pub rate: Option<f64>,
    /// Open loop in steps: rate and time of each, such as 5000x10s 300x3s
    #[arg(long, value_name = "RATExTIME", num_args = 1.., conflicts_with_all = ["rate", "duration", "requests"], help_heading = "Load")]
    pub phase: Vec<PhaseFlag>,
    /// Open loop: play recorded arrivals, a CSV of seconds or an access log; without --rate at their
    /// own speed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["phase", "arrivals"], help_heading = "Load")]
    pub trace: Option<PathBuf>,
    /// How requests come in an open loop: poisson, constant, bursts, onoff or hyper
    /// [default: poisson]
    #[arg(long, value_name = "PROCESS", help_heading = "Load")]
    pub arrivals: Option<String>,
    /// How long it lasts, without the warm-up [default: 10s]
    #[arg(short, long, value_name = "TIME", help_heading = "Load")]
    pub duration: Option<Span>,
    /// Instead of a time: so many requests
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration", help_heading = "Load")]
    pub requests: Option<u64>,
    /// Load that does not count, before the rest [default: 1s, or 0 with --requests]
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    pub warm_up: Option<Span>,
    /// Closed loop: time between an answer and the next request; 5ms, 5ms:exponential or 5ms:pareto
    #[arg(long, value_name = "TIME[:KIND]", help_heading = "Load")]
    pub think: Option<ThinkFlag>,
    /// The seed of all chance
    #[arg(long, value_name = "N", default_value_t = 42, help_heading = "Load")]
    pub seed: u64,

    /// Open loop: most connections of a pool; a request that finds none free waits [default: 1024; 1
    /// for HTTP/2 and gRPC]
    #[arg(long, value_name = "N", conflicts_with = "connections", help_heading = "Connections")]
    pub pool: Option<usize>,
    /// Open loop: which free connection is taken
    #[arg(long, value_name = "ORDER", default_value = "last-freed", help_heading = "Connections")]
    pub pool_order: PoolOrderFlag,
    /// Open loop: so many pools, as of so many client processes
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Connections")]
    pub pools: usize,
    /// Requests at a time on a connection of HTTP/2 or gRPC [default: 1; 100 in an open loop]
    #[arg(long, value_name = "N", help_heading = "Connections")]
    pub streams: Option<usize>,
    /// Time to the answer, counted from when the request is due [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = "Connections")]
    pub timeout: Option<Millis>,
    /// Threads that send; in an open loop at most one per pool
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Connections")]
    pub threads: usize,
    /// Trust this certificate (PEM) instead of those of the system
    #[arg(long, value_name = "FILE", help_heading = "Connections")]
    pub ca: Option<PathBuf>,
    /// Trust any certificate
    #[arg(long, conflicts_with = "ca", help_heading = "Connections")]
    pub insecure: bool,

    /// What is spoken [default: by the URL; oip-binary with --input]
    #[arg(long, value_name = "PROTOCOL", help_heading = "Requests")]
    pub protocol: Option<ProtocolFlag>,
    /// The method [default: POST with a body, else GET]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Requests")]
    pub method: Option<String>,
    /// The body
    #[arg(short = 'b', long, value_name = "TEXT", conflicts_with_all = ["body_file", "input"], help_heading = "Requests")]
    pub body: Option<String>,
    /// A file with the body, or a folder of them; several are sent in turn
    #[arg(short = 'f', long, value_name = "PATH", num_args = 1.., conflicts_with = "input", help_heading = "Requests")]
    pub body_file: Vec<PathBuf>,
    /// The type of the body [default: application/json for JSON, else application/octet-stream]
    #[arg(long, value_name = "TYPE", help_heading = "Requests")]
    pub content_type: Option<String>,
    /// A header, 'name: value'; may be given several times
    #[arg(short = 'H', long, value_name = "HEADER", help_heading = "Requests")]
    pub header: Vec<String>,
    /// A tensor for Open Inference: NAME:TYPE:SHAPE, and :FILE, :zeros or :random
    #[arg(long, value_name = "TENSOR", help_heading = "Requests")]
    pub input: Vec<InputTensor>,

    /// Time within which an answer is good, such as 100ms; the rate of good ones is the goodput
    #[arg(long, value_name = "TIME", help_heading = "Results")]
    pub objective: Option<Millis>,
    /// Write the results as JSON into this file, or - for stdout
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub json: Option<PathBuf>,
    /// Draw latency over time into this file (svg)
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub svg: Option<PathBuf>,
    /// Start even if the first request fails
    #[arg(long, help_heading = "Results")]
    pub keep_going: bool,
    /// Print no summary and no progress
    #[arg(short, long, help_heading = "Results")]
    pub quiet: bool,
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtocolFlag {
    /// HTTP/1.1
    Http1,
    /// HTTP/2
    Http2,
    /// gRPC: TorchServe's Predictions, or Open Inference's ModelInfer with --input
    Grpc,
    /// Open Inference over HTTP with binary tensors
    OipBinary,
}

/// Which free connection is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PoolOrderFlag {
    /// The one that became free last, as most clients do
    #[default]
    LastFreed,
    /// The one that has been free longest
    LongestFree,
    /// Any
    Random,
}

impl From<PoolOrderFlag> for PoolOrder {
    fn from(flag: PoolOrderFlag) -> Self {
        match flag {
            PoolOrderFlag::LastFreed => Self::LastFreed,
            PoolOrderFlag::LongestFree => Self::LongestFree,
            PoolOrderFlag::Random => Self::Random,
        }
    }
}

/// `5000x10s`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseFlag {
    /// Requests per second.
    pub rate: f64,
    /// How long.
    pub length: Span,
}

impl FromStr for PhaseFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a step; write it like 5000x10s");
        let (rate, length) = text.split_once('x').ok_or_else(wrong)?;
        let rate: f64 = rate.parse().map_err(|_| wrong())?;
        Ok(Self { rate, length: length.parse().map_err(|_| wrong())? })
    }
}

/// `5ms:exponential`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThinkFlag(pub ThinkTime);

impl FromStr for ThinkFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mean, kind) = text.split_once(':').unwrap_or((text, "fixed"));
        let kind = match kind {
            "fixed" => ThinkTimeKind::Fixed,
            "exponential" => ThinkTimeKind::Exponential,
            "pareto" => ThinkTimeKind::Pareto,
            _ => {
                let known = "fixed, exponential or pareto";
                return Err(format!("{text:?} is not a time to think; its kind is {known}"));
            }
        };
        Ok(Self(ThinkTime { mean: Millis::from_str(mean)?.0, kind }))
    }
}

const EXAMPLES: &str = "\
Examples:
  jitney bench http://127.0.0.1:8080/predictions/m -c 64 --body-file cat.jpg
  jitney bench http://127.0.0.1:8080/predictions/m --rate 300 --objective 100ms --body '[1, 2]'
  jitney bench http://127.0.0.1:8080/predictions/m --phase 5000x10s 300x3s --svg overload.svg
  jitney bench http://127.0.0.1:8080/predictions/m --trace access.log --pool 64
  jitney bench http://127.0.0.1:8080/v2/models/m/infer --input x:FP32:1,3,224,224
  jitney bench grpc://127.0.0.1:7070/m --streams 256 --body-file cat.jpg

In an open loop latency counts from the moment at which a request was due, not from when it
was sent, so a server that stalls cannot hide it (coordinated omission). A request takes a free
connection of the pool, or opens one, or waits for one. Arrivals are those of `jitney simulate`
with the same seed.

The exit code is 0 if anything was answered.";

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn steps_and_times_to_think_are_read() {
        let step: PhaseFlag = "5000x1.5s".parse().expect("a step");
        assert_eq!((step.rate, step.length.0), (5000.0, Duration::from_millis(1500)));
        assert_eq!(
            "300x3".parse::<PhaseFlag>().map(|step| step.length.0),
            Ok(Duration::from_secs(3))
        );
        for wrong in ["5000", "x10s", "5xsoon"] {
            assert!(wrong.parse::<PhaseFlag>().is_err(), "{wrong}");
        }
        let think: ThinkFlag = "5ms:exponential".parse().expect("a time");
        assert_eq!(think.0.kind, ThinkTimeKind::Exponential);
        assert_eq!(
            "5".parse::<ThinkFlag>().map(|think| think.0.mean),
            Ok(Duration::from_millis(5))
        );
        assert!("5ms:long".parse::<ThinkFlag>().is_err());
    }
}
