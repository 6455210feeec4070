//! The flags of `jitney infer`: a model, an input, an output, and the options of the job.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use jitney_settings::LogFormat;

use crate::units::Seconds;

/// `jitney infer`
#[derive(Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct InferFlags {
    /// What to run: anything `jitney serve` takes (an archive, a directory, an .onnx file,
    /// module:object, hf:ORG/NAME), or a model of a running server as http://host:8080/predictions/NAME
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// The rows: .jsonl, .csv, .tsv, .parquet, a folder of images, or - for JSON lines on stdin (with
    /// --format images: file names); with --ray also a folder of Parquet files, on a disk or as s3://BUCKET/FOLDER
    #[arg(value_name = "INPUT")]
    pub input: PathBuf,
    /// Where the answers go: .jsonl, .csv or .parquet, or - for JSON lines on stdout; of a folder of Parquet
    /// files another folder
    #[arg(short, long, value_name = "OUTPUT")]
    pub output: PathBuf,
    /// The format of the input, if its name does not tell
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<InputFormat>,
    /// The endpoint, for a definition with several
    #[arg(long, value_name = "NAME")]
    pub endpoint: Option<String>,
    /// Number of workers [default: the model's setting, else one per GPU or processor, 8 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub workers: Option<u32>,
    /// Most rows in a batch [default: the model's setting]
    #[arg(long, visible_alias = "max-batch-size", value_name = "N")]
    pub batch_size: Option<u32>,
    /// Most rows in flight [default: two batches per worker; 64 for a running server]
    #[arg(long, value_name = "N")]
    pub in_flight: Option<usize>,
    /// Run on Ray, on the cluster at ADDRESS (auto: the cluster of this machine) or on a new
    /// one on this machine; Python needs ray[data]; --workers is the number of actors
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    pub ray: Option<String>,
    /// Of a folder of Parquet files, the columns that the model gets, with commas between them; partitions have
    /// to be named [default: all columns of the files]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Load the model also if that runs code that is part of it
    #[arg(long)]
    pub trust: bool,
    /// What a model of several uses is for
    #[arg(long, value_name = "TASK")]
    pub task: Option<String>,
    /// Repeat the input beside each answer
    #[arg(long)]
    pub with_input: bool,
    /// Turn CSV cells that are numbers into numbers; without it all cells are text, which
    /// definitions convert by their type hints
    #[arg(long)]
    pub numbers: bool,
    /// End the job when more rows than this have failed [default: never]
    #[arg(long, value_name = "N")]
    pub max_failed: Option<u64>,
    /// Start over, and discard the progress of an earlier run
    #[arg(long)]
    pub overwrite: bool,
    /// Time a batch may run before its worker is replaced [default: 120s]
    #[arg(long, value_name = "TIME")]
    pub response_timeout: Option<Seconds>,
    /// Time a worker may take to load its model [default: 120s]
    #[arg(long, value_name = "TIME")]
    pub startup_timeout: Option<Seconds>,
    /// Python for Python models and Parquet files [default: as for jitney serve]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Where models from URLs are kept
    #[arg(long, value_name = "DIR")]
    pub model_store: Option<PathBuf>,
    /// What to log, as for jitney serve [default: error]
    #[arg(long, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Form of log lines: text or json [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(LogFormat::WORDS))]
    pub log_format: Option<String>,
}

/// The format of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// One JSON value per line
    Jsonl,
    /// Comma-separated, with a header
    Csv,
    /// Tab-separated, with a header
    Tsv,
    /// Parquet; Python needs pyarrow
    Parquet,
    /// A folder of images, one row per file
    Images,
}

const EXAMPLES: &str = "\
Examples:
  jitney infer app:model rows.jsonl -o answers.jsonl
  jitney infer resnet.mar photos/ -o labels.csv --batch-size 32 --workers 4
  jitney infer http://gpu-box:8080/predictions/bert texts.csv -o answers.parquet
  jitney infer app:model s3://data/texts -o s3://data/answers --columns text --ray=auto

Answers are in the order of the input: {\"row\": 0, \"output\": ...}. Rows that fail are written to
OUTPUT.failed.jsonl, with their error. While the job runs, its rows are in OUTPUT.part and its
progress in OUTPUT.progress. However the job ended, the same command resumes it. JITNEY_TOKEN is
sent to a running server that needs a token.";
