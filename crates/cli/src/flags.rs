//! The command line: every command, every flag and their help texts. Other modules act on them.

pub mod archive;
pub mod bench;
pub mod change;
pub mod completions;
pub mod config;
pub mod containerize;
pub mod doctor;
pub mod infer;
pub mod inspect;
pub mod jobs;
pub mod keys;
pub mod onnx;
pub mod remote;
pub mod serve;
pub mod settings;
pub mod study;
pub mod torchserve;

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::{Args, Parser, Subcommand};

use crate::failure;
use archive::{ArchiveFlags, ArchiveWorkflowFlags};
use bench::BenchFlags;
use change::{DefaultFlags, RegisterFlags, ScaleFlags, SetFlags, TrafficFlags, UnregisterFlags};
use completions::CompletionsFlags;
use config::ConfigFlags;
use containerize::ContainerizeFlags;
use doctor::DoctorFlags;
use infer::InferFlags;
use inspect::InspectFlags;
use jobs::JobsFlags;
use keys::KeysFlags;
use onnx::OnnxFlags;
use remote::{LogsFlags, ModelsFlags, StatusFlags, TopFlags};
pub use serve::ServeFlags;
use settings::SettingFlags;
use study::{PlanFlags, SimulateFlags};
use torchserve::TorchserveFlags;

/// Serves models over HTTP and gRPC, in batches.
#[derive(Debug, Parser)]
#[command(name = "jitney", version, propagate_version = false, max_term_width = 100)]
#[command(after_help = EXAMPLES, help_template = help_template())]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  jitney demo                               a real model, nothing to download
  jitney serve resnet.mar                   a TorchServe archive
  jitney serve model.onnx --port 9000       an ONNX model, no Python needed
  jitney infer app:model rows.jsonl -o answers.jsonl
  jitney torchserve --start --model-store models --models resnet.mar
  jitney archive --model-name m --version 1.0 --handler handler.py
  jitney bench http://127.0.0.1:8080/predictions/m --rate 500 --body-file cat.jpg
  jitney plan --curve 5+0.2b --rate 500 --p99 100ms
  jitney top                                watch a running server; also status, models, logs
  jitney scale resnet 4                     change a running server; also register, set, unregister
  jitney doctor                             what is missing on this machine, and what to do

Each command has its own --help.";

/// The commands by what they are for, in the order of the help.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Serve", &["serve", "torchserve", "demo", "platform"]),
    (
        "Develop",
        &[
            "inspect",
            "check",
            "infer",
            "archive",
            "archive-workflow",
            "containerize",
            "config",
            "onnx",
            "completions",
        ],
    ),
    (
        "Operate",
        &[
            "status",
            "top",
            "models",
            "register",
            "scale",
            "set",
            "default",
            "traffic",
            "unregister",
            "jobs",
            "logs",
            "keys",
            "doctor",
        ],
    ),
    ("Plan", &["bench", "simulate", "plan"]),
];

/// clap lists commands under one heading only.
fn help_template() -> String {
    let commands = Command::augment_subcommands(clap::Command::new("jitney"));
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "\n{group}:");
        for name in names {
            let about = commands.find_subcommand(name).and_then(clap::Command::get_about);
            let _ = writeln!(
                text,
                "  {name:<18}{}",
                about.map(ToString::to_string).unwrap_or_default()
            );
        }
    }
    text + "\nOptions:\n{options}{after-help}"
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve models: TorchServe archives, directories, ONNX files, Python definitions
    Serve(Box<ServeFlags>),
    /// Run a model over a file or a folder, without a server
    Infer(Box<InferFlags>),
    /// Say what a model file or folder is, what it takes, what is missing, and how to call it
    Inspect(InspectFlags),
    /// Look for batching mistakes in a Python definition, without a server
    Check(CheckFlags),
    /// Serve the model inside this program: it tells the type of a file from its bytes
    Demo(DemoFlags),
    /// Understand TorchServe's command line and config.properties
    Torchserve(TorchserveFlags),
    /// Say which cloud platform serve finds itself on
    Platform,
    /// Pack a model into an archive, as torch-model-archiver does
    Archive(ArchiveFlags),
    /// Pack a workflow into an archive, as torch-workflow-archiver does
    ArchiveWorkflow(ArchiveWorkflowFlags),
    /// Write a Dockerfile for a model, and build its image where buildah is
    Containerize(ContainerizeFlags),
    /// Print every effective value of serve or torchserve and where it comes from
    Config(Box<ConfigFlags>),
    /// Put a server under load and measure its answers
    Bench(Box<BenchFlags>),
    /// Compare batching policies on a workload, without a server, and draw the result
    Simulate(Box<SimulateFlags>),
    /// Answer how many workers and which largest batch a load needs
    Plan(PlanFlags),
    /// Say which engine runs ONNX models here, or install the faster one
    Onnx(OnnxFlags),
    /// Say whether a running server is ready, with one line per model
    Status(StatusFlags),
    /// Watch a running server in the terminal: traffic, latency, queues, workers
    Top(TopFlags),
    /// List the models of a running server, or show one of them
    Models(ModelsFlags),
    /// Add a model to a running server
    Register(Box<RegisterFlags>),
    /// Change the number of workers of a model
    Scale(ScaleFlags),
    /// Change settings of a model while it runs
    Set(SetFlags),
    /// Make another version of a model the default
    Default(DefaultFlags),
    /// Let versions of a model share its requests, or show how they do
    Traffic(TrafficFlags),
    /// Remove a model or a version from a running server
    Unregister(UnregisterFlags),
    /// Ask for predictions that are answered later, and look after them
    Jobs(Box<JobsFlags>),
    /// Print the last log lines of a running server, or follow its log
    Logs(LogsFlags),
    /// Make, list and revoke the keys of keys.yaml, by which clients are known
    Keys(KeysFlags),
    /// Check this machine: Python, torch, GPUs, ONNX Runtime, ports, limits
    Doctor(DoctorFlags),
    /// Print the completions of a shell
    Completions(CompletionsFlags),
    /// Run the batches of an ONNX model; the server starts this itself
    #[command(hide = true)]
    OnnxWorker,
    /// End the worker processes of a server that was killed; the server starts this itself
    #[command(hide = true)]
    GuardGroups,
}

/// `jitney check`
#[derive(Debug, Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub struct CheckFlags {
    /// The definition: module:object or file.py:object
    #[arg(value_name = "OBJECT")]
    pub object: String,
    /// Arguments of one item as a JSON object; may be given several times
    #[arg(long, value_name = "JSON")]
    pub sample: Vec<String>,
    /// Examine this endpoint alone [default: all]
    #[arg(long, value_name = "NAME")]
    pub endpoint: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Python to run it with [default: as for jitney serve]
    #[arg(long, value_name = "PATH")]
    pub python: Option<std::path::PathBuf>,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  jitney check app:adder
  jitney check app:Iris --sample '{\"x\": [[5.1, 3.5, 1.4, 0.2]]}'
  jitney check app:Shop --endpoint price --json

The status is 1 if there is a mistake, and if no endpoint could be run.";

/// `jitney demo`
#[derive(Debug, Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoFlags {
    /// Where to listen.
    #[command(flatten)]
    pub addresses: SettingFlags<false>,
}

const DEMO_EXAMPLES: &str = "\
Examples:
  jitney demo
  curl -T Cargo.toml http://127.0.0.1:8080/predictions/magika";

/// Reads the command line; help, version and complaints come back as the text and the exit code.
pub fn parse(args: &[OsString]) -> Result<Cli, (clap::Error, u8)> {
    Cli::try_parse_from(args).map_err(|error| {
        let code = match (error.use_stderr(), is_argparse(args)) {
            (false, _) => 0,
            (true, true) => failure::USAGE_TORCHSERVE,
            (true, false) => failure::USAGE,
        };
        (error, code)
    })
}

/// Commands that stand in for a Python program and fail as it does.
fn is_argparse(args: &[OsString]) -> bool {
    let command = args.get(1).and_then(|command| command.to_str());
    matches!(command, Some("torchserve" | "archive" | "archive-workflow"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &str) -> Option<u8> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(&args).err().map(|(_, code)| code)
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        use clap::CommandFactory;
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
        let mut shown: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
    }

    #[test]
    fn exit_codes_follow_the_command() {
        for (line, expected) in [
            ("jitney serve --frobnicate", Some(64)),
            ("jitney torchserve --frobnicate", Some(2)),
            ("jitney torchserve --start --stop", Some(2)),
            ("jitney archive --model-name m", Some(2)),
            ("jitney archive-workflow --workflow-name w", Some(2)),
            ("jitney archive --help", Some(0)),
            ("jitney archive --model-n m -v 1 --hand h.py --arch tgz --runtime LSP", None),
            ("jitney --help", Some(0)),
            ("jitney serve --help", Some(0)),
            ("jitney", Some(64)),
            ("jitney serve a.mar --batch-size 8", None),
            ("jitney serve a.mar --batch-size many", Some(64)),
        ] {
            assert_eq!(code(line), expected, "{line}");
        }
    }
}
