//! `jitney keys`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use jitney_server::keys::Scope;

/// `jitney keys`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct KeysFlags {
    /// What to do.
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// The commands of `jitney keys`.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Make a key, print it once and add its row; the file gets its SHA-256 only
    New(Box<NewKeyFlags>),
    /// List the keys of the file
    List(KeyListFlags),
    /// Remove a key from the file; a running server refuses it a second later
    Revoke(RevokeFlags),
}

/// `jitney keys new`
#[derive(Debug, Args)]
pub struct NewKeyFlags {
    /// Name of the key, as logs and the audit show it
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Which file.
    #[command(flatten)]
    pub list: KeyListFlags,
    /// What it may do: predict, explain, manage, metrics; for some models predict:PATTERN; may be given several times
    #[arg(long = "scope", value_name = "SCOPE", default_value = "predict")]
    pub scopes: Vec<Scope>,
    /// Tenant of its requests
    #[arg(long, value_name = "NAME")]
    pub tenant: Option<String>,
    /// When it ends: 2027-01-31, 2027-01-31T12:00:00Z, or after a time such as 90d [default: never]
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
    /// Items a second that it may ask for [default: no limit]
    #[arg(long, value_name = "ITEMS")]
    pub rate: Option<f64>,
    /// Items that it may ask for at once [default: those of one second]
    #[arg(long, value_name = "ITEMS", requires = "rate")]
    pub burst: Option<u64>,
    /// Requests that it may have under way [default: no limit]
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u64>,
    /// Subject of a client certificate that stands for the key; may be given several times
    #[arg(long = "subject", value_name = "SUBJECT")]
    pub subjects: Vec<String>,
}

/// `jitney keys list`, and which file all of them mean
#[derive(Debug, Args)]
pub struct KeyListFlags {
    /// The file of --keys
    #[arg(long, value_name = "FILE", default_value = "keys.yaml")]
    pub file: PathBuf,
}

/// `jitney keys revoke`
#[derive(Debug, Args)]
pub struct RevokeFlags {
    /// Name of the key
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Which file.
    #[command(flatten)]
    pub list: KeyListFlags,
}

const EXAMPLES: &str = "\
Examples:
  jitney keys new search --tenant search --rate 100 --burst 200 --expires 90d
  jitney keys new dashboards --scope metrics
  jitney keys new trainers --scope 'manage:bert*' --scope 'predict:bert*'
  jitney keys list
  jitney keys revoke search
  jitney serve model.onnx --keys keys.yaml";
