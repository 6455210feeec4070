//! The flags of `jitney serve`.

use clap::{Args, ValueEnum};

use super::settings::SettingFlags;

/// `jitney serve`
#[derive(Debug, Default, Args)]
#[command(after_help = "`jitney serve --help` has every option, and examples.", after_long_help = SERVE_EXAMPLES)]
pub struct ServeFlags {
    /// What to serve: a .mar or .tar.gz archive, a model directory, an .onnx file or a Python
    /// definition as module:object or file.py:object; NAME=MODEL gives it another name
    #[arg(value_name = "MODEL")]
    pub models: Vec<String>,
    /// Read settings and models from this file (yaml). Flags and JITNEY_* variables win over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
    /// Load models again when their files change, without dropping a request
    #[arg(long)]
    pub watch: bool,
    /// Fetch ONNX Runtime without asking, where a model needs it and it is not there
    #[arg(long)]
    pub yes: bool,
    /// The cloud platform whose container this is [default: found by its variables; env: JITNEY_PLATFORM]
    #[arg(long, value_name = "NAME", value_enum)]
    pub platform: Option<Platform>,
    /// End when standard input ends, as that of a child does with its parent
    #[arg(long, hide = true)]
    pub until_eof: bool,
    /// Python file (or module) with endpoints or authorization of your own; may be given several times
    #[arg(long = "plugin", value_name = "FILE")]
    pub plugins: Vec<String>,
    /// Everything that can also stand in the file or the environment.
    #[command(flatten)]
    pub settings: SettingFlags<true>,
}

/// A platform that gives containers their port, their model and their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Platform {
    /// Amazon SageMaker, one model or many.
    Sagemaker,
    /// Google's Vertex AI.
    Vertex,
    /// Azure Machine Learning.
    AzureMl,
    /// Containers of MLServer's, KServe's among them.
    Mlserver,
    /// Hugging Face's inference toolkit.
    HuggingFace,
    /// Cloud Run and Knative.
    CloudRun,
    /// Amazon's ECS.
    Ecs,
    /// Any that says only PORT.
    Port,
    /// None, whatever the variables say.
    None,
}

impl Platform {
    /// As the flag spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sagemaker => "sagemaker",
            Self::Vertex => "vertex",
            Self::AzureMl => "azure-ml",
            Self::Mlserver => "mlserver",
            Self::HuggingFace => "hugging-face",
            Self::CloudRun => "cloud-run",
            Self::Ecs => "ecs",
            Self::Port => "port",
            Self::None => "none",
        }
    }
}

const SERVE_EXAMPLES: &str = "\
Examples:
  jitney serve resnet.mar
  jitney serve app:adder --watch
  jitney serve cat=models/cat.mar dog=models/dog.onnx --workers 2
  jitney serve bert.mar --batch-size 16 --max-latency-ms 50
  jitney serve --config jitney.yaml

Every option is also a variable (JITNEY_MAX_LATENCY_MS=50) and a key of the file:
  port: 8080
  batching: {policy: adaptive, max_batch_size: 16, max_latency_ms: 50}
  models:
    - path: models/bert.mar
      workers: 2
      batching: {max_batch_size: 32}
The order is: flag, variable, the model's entry, the file, what the archive says, the default.

Models can be registered and unregistered on the management port while the server runs. The ports
listen on this machine only unless --host says otherwise; --token-auth asks clients for a token.";
