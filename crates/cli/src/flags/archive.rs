//! The flags of TorchServe's two archivers. Long names may be abbreviated, as there.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `jitney archive`
#[derive(Clone, Debug, Args)]
#[command(disable_version_flag = true, infer_long_args = true, args_override_self = true, after_help = EXAMPLES)]
pub struct ArchiveFlags {
    /// Name of the model and of the archive: letters, digits, `_`, `-` and `.`, the first a letter
    /// or a digit
    #[arg(long, value_name = "NAME")]
    pub model_name: String,
    /// Version of the model
    #[arg(short = 'v', long, value_name = "VERSION")]
    pub version: String,
    /// A stock handler (image_classifier, text_classifier, object_detector, image_segmenter,
    /// base_handler, ...), or the file with your own: FILE.py, or MODULE:FUNCTION
    #[arg(long, value_name = "HANDLER")]
    pub handler: String,
    /// The weights: a .pt or .pth file, or any other file that the handler loads
    #[arg(long, value_name = "FILE")]
    pub serialized_file: Option<PathBuf>,
    /// The Python file with the model's class, for weights that need one
    #[arg(long, value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// More files, separated by commas; `*`, `?` and `[...]` match names, a directory gives its
    /// contents
    #[arg(long, value_name = "LIST")]
    pub extra_files: Option<String>,
    /// Language of the handler: python, python3 or LSP (C++)
    #[arg(long, value_enum, default_value_t, value_name = "RUNTIME", hide_possible_values = true)]
    pub runtime: HandlerRuntime,
    /// Directory to write to; it is created if it does not exist [default: the current one]
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true)]
    pub export_path: PathBuf,
    /// What to write: NAME.mar compressed (default) or not (zip-store), NAME.tar.gz (tgz) or a
    /// directory (no-archive)
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    pub archive_format: PackFormat,
    /// Replace an existing archive
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Python packages the handler needs, for pip
    #[arg(short = 'r', long, value_name = "FILE")]
    pub requirements_file: Option<PathBuf>,
    /// Settings of the model (yaml)
    #[arg(short = 'c', long, value_name = "FILE")]
    pub config_file: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  jitney archive --model-name resnet --version 1.0 --serialized-file resnet.pt \\
    --handler image_classifier --extra-files index_to_name.json --export-path models
  jitney archive --model-name echo -v 1.0 --handler handler.py -c model-config.yaml -f

The command line is torch-model-archiver's. Exit codes: 0 fine, 1 failed, 2 wrong flags.";

/// `jitney archive-workflow`
#[derive(Clone, Debug, Args)]
#[command(disable_version_flag = true, infer_long_args = true, args_override_self = true, after_help = WORKFLOW_EXAMPLES)]
pub struct ArchiveWorkflowFlags {
    /// Name of the workflow and of the archive: letters, digits, `_`, `-` and `.`, the first a
    /// letter or a digit
    #[arg(long, value_name = "NAME")]
    pub workflow_name: String,
    /// The workflow's models and their order (yaml)
    #[arg(long, value_name = "FILE")]
    pub spec_file: PathBuf,
    /// The Python file with the functions of the workflow
    #[arg(long, value_name = "FILE")]
    pub handler: Option<String>,
    /// More files, separated by commas; `*`, `?` and `[...]` match names, a directory gives its
    /// contents
    #[arg(long, value_name = "LIST")]
    pub extra_files: Option<String>,
    /// Directory to write to, which must exist [default: the current one]
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true)]
    pub export_path: PathBuf,
    /// Replace an existing archive
    #[arg(short = 'f', long)]
    pub force: bool,
}

const WORKFLOW_EXAMPLES: &str = "\
Examples:
  jitney archive-workflow --workflow-name dogs --spec-file workflow.yaml --handler workflow_handler.py

The command line is torch-workflow-archiver's. Exit codes: 0 fine, 1 failed, 2 wrong flags.";

/// The language of a handler, as the manifest spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HandlerRuntime {
    /// `python`
    #[default]
    Python,
    /// `python3`
    Python3,
    /// `LSP`, the C++ backend
    #[value(name = "LSP")]
    Lsp,
}

/// What an archive is written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PackFormat {
    /// A compressed zip, NAME.mar
    #[default]
    Default,
    /// A zip without compression, NAME.mar
    ZipStore,
    /// NAME.tar.gz with one directory at its top
    Tgz,
    /// A directory
    NoArchive,
}
