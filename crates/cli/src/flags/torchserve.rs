//! TorchServe's own flags, spelled as its users spell them: long names may be cut short, and some
//! have two spellings.

use std::path::PathBuf;

use clap::Args;

/// `jitney torchserve`
#[derive(Clone, Debug, Default, Args)]
#[command(disable_version_flag = true, infer_long_args = true, args_override_self = true, after_help = EXAMPLES)]
pub struct TorchserveFlags {
    /// Print the TorchServe version this program stands in for
    #[arg(short = 'v', long, conflicts_with_all = ["start", "stop"])]
    pub version: bool,
    /// Start the server; this is also what happens without --stop and --version
    #[arg(long, conflicts_with = "stop")]
    pub start: bool,
    /// Stop the server that was started with the same temporary directory
    #[arg(long)]
    pub stop: bool,
    /// Stay in the foreground; with --stop: wait up to 60 s until the server is gone
    #[arg(long)]
    pub foreground: bool,
    /// Read this config.properties; without it TS_CONFIG_FILE, the newest snapshot
    /// or ./config.properties is read
    #[arg(long, value_name = "FILE")]
    pub ts_config: Option<PathBuf>,
    /// Directory with the model archives; needed here or in the file
    #[arg(long, value_name = "DIR")]
    pub model_store: Option<PathBuf>,
    /// Directory with the workflow archives [default: the model store]
    #[arg(long, value_name = "DIR")]
    pub workflow_store: Option<PathBuf>,
    /// Models to load at start-up: FILE or NAME=FILE, separated by spaces or commas; "all" loads the
    /// whole store
    #[arg(long, value_name = "MODEL", num_args = 1..)]
    pub models: Vec<String>,
    /// Do not write snapshots of the configuration, nor go on from the newest one
    #[arg(long = "no-config-snapshots", visible_alias = "ncs")]
    pub no_config_snapshots: bool,
    /// Let anyone who reaches the ports use them, without the tokens of key_file.json
    #[arg(long, visible_alias = "dt")]
    pub disable_token_auth: bool,
    /// Allow models to be registered and unregistered through the management API
    #[arg(long)]
    pub enable_model_api: bool,
    /// Accepted without effect: the log's form is fixed
    #[arg(long, value_name = "FILE")]
    pub log_config: Option<PathBuf>,
    /// Accepted without effect: there is no C++ backend
    #[arg(long, value_name = "FILE")]
    pub cpp_log_config: Option<PathBuf>,
    /// Directory whose Python files are loaded as plugins; Java's jars cannot be
    #[arg(long, visible_alias = "ppath", value_name = "DIR")]
    pub plugins_path: Option<PathBuf>,
    /// Answer predictions at this port as well, on all addresses: KServe asks 8080, whatever the
    /// file says
    #[arg(long, value_name = "PORT")]
    pub kserve_port: Option<u16>,
    /// Answer gRPC by the Open Inference Protocol at this port as well, on all addresses: KServe asks 8081. Where the
    /// file has another use for the port, that stays
    #[arg(long, value_name = "PORT")]
    pub kserve_grpc_port: Option<u16>,
    /// Set by the launcher for the server it starts in the background.
    #[arg(long, hide = true)]
    pub detached: bool,
    /// Set by the launcher: a word by which other programs find the server; without effect.
    #[arg(long, hide = true)]
    pub marker: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  jitney torchserve --start --ncs --model-store models --models resnet.mar --disable-token-auth
  jitney torchserve --start --foreground --ts-config config.properties
  jitney torchserve --stop

Logs go to ./logs (LOG_LOCATION, METRICS_LOCATION); the pid file is .model_server.pid in the
temporary directory. Exit codes: 0 fine, 1 failed, 2 wrong flags.";

impl TorchserveFlags {
    /// Flags that are accepted and do nothing, for the log.
    pub fn without_effect(&self) -> Vec<&'static str> {
        let given = [
            (self.log_config.is_some(), "--log-config"),
            (self.cpp_log_config.is_some(), "--cpp-log-config"),
        ];
        given.into_iter().filter(|(given, _)| *given).map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::flags::{Command, parse};

    fn flags(line: &str) -> Option<TorchserveFlags> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let Command::Torchserve(flags) = parse(&args).ok()?.command else { return None };
        Some(flags)
    }

    #[test]
    fn flags_may_be_cut_short_and_have_second_names() {
        let flags =
            flags("jitney torchserve --sta --fore --ncs --dt --enable --model-s d --ppath p");
        let flags = flags.expect("accepted");
        assert!(flags.start && flags.foreground && flags.no_config_snapshots);
        assert!(flags.disable_token_auth && flags.enable_model_api);
        assert_eq!(flags.model_store, Some(PathBuf::from("d")));
        assert_eq!(flags.plugins_path, Some(PathBuf::from("p")));
        assert!(flags.without_effect().is_empty());
    }

    #[test]
    fn of_a_flag_given_twice_the_last_counts() {
        let flags = flags("jitney torchserve --ncs --ncs --ts-config a --ts-config b");
        let flags = flags.expect("accepted");
        assert!(flags.no_config_snapshots);
        assert_eq!(flags.ts_config, Some(PathBuf::from("b")));
    }

    #[test]
    fn models_take_many_values_until_the_next_flag() {
        let flags = flags("jitney torchserve --models a.mar b=c.mar --ncs").expect("accepted");
        assert_eq!(flags.models, ["a.mar", "b=c.mar"]);
        assert!(flags.no_config_snapshots);
    }
}
