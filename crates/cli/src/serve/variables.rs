//! `JITNEY_*` variables. Each is read as the flag of the same name, so that a variable can never know
//! more, or mean something else, than the flag.

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use super::options::Options;
use crate::env::Env;
use crate::failure::Failure;
use crate::nearest::did_you_mean;

const PREFIX: &str = "JITNEY_";

/// What the environment says, and remarks about variables that were not understood.
#[derive(Debug, Default)]
pub struct Variables {
    /// The options it sets.
    pub options: Options,
    /// Sentences for the log.
    pub remarks: Vec<String>,
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Flags {
    #[command(flatten)]
    options: Options,
}

/// Reads the environment.
pub fn read(env: &Env) -> Result<Variables, Failure> {
    let known = known();
    let mut variables = Variables::default();
    for (name, value) in named(env) {
        let flag = flag_of(name);
        if known.contains(&flag) {
            let read =
                parse(&flag, value).map_err(|why| Failure::usage(format!("{name}: {why}")))?;
            variables.options = variables.options.or(read);
        } else if !is_other(name) {
            variables.remarks.push(unknown(name, &known));
        }
    }
    Ok(variables)
}

/// Our variables. Kubernetes sets `JITNEY_PORT=tcp://…` beside a service called jitney; that is not
/// meant for us.
fn named(env: &Env) -> impl Iterator<Item = (&str, &str)> {
    let texts = env.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    texts.filter(|(name, value)| {
        name.starts_with(PREFIX) && !value.starts_with("tcp://") && !value.starts_with("udp://")
    })
}

fn flag_of(name: &str) -> String {
    let key = name[PREFIX.len()..].to_ascii_lowercase().replace('_', "-");
    if key == "log" { "log-level".to_owned() } else { key }
}

fn known() -> Vec<String> {
    let command = Flags::command();
    let flags = command.get_arguments().flat_map(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long().into_iter().chain(aliases).map(str::to_owned).collect::<Vec<_>>()
    });
    flags.filter(|flag| flag != "help").collect()
}

fn parse(flag: &str, value: &str) -> Result<Options, String> {
    let argument = OsString::from(format!("--{flag}={value}"));
    match Flags::try_parse_from([argument]) {
        Ok(flags) => Ok(flags.options),
        Err(error) => Err(first_line(&error.to_string())),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Variables of other parts of the product, and of Kubernetes' service links.
fn is_other(name: &str) -> bool {
    ["JITNEY_BIN", "JITNEY_CONFIG"].contains(&name)
        || name.contains("TOKEN")
        || name.contains("_SERVICE_")
        || name.contains("_PORT_")
}

fn unknown(name: &str, known: &[String]) -> String {
    let names: Vec<String> = known
        .iter()
        .map(|flag| format!("{PREFIX}{}", flag.to_uppercase().replace('-', "_")))
        .collect();
    let hint = did_you_mean(name, names.iter().map(String::as_str)).unwrap_or_default();
    format!("the variable {name} is unknown and has no effect; {hint}")
        .trim_end_matches("; ")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_read_as_the_flag_of_its_name() {
        let env = Env::from([
            ("JITNEY_PORT", "9000"),
            ("JITNEY_MAX_LATENCY_MS", "50"),
            ("JITNEY_LOG", "debug"),
            ("JITNEY_ACCESS_LOG", "true"),
            ("HOME", "/root"),
        ]);
        let options = read(&env).expect("reads").options;
        assert_eq!(options.network.port, Some(9000));
        assert_eq!(options.per_model.batching.max_latency_ms.map(|t| t.whole()), Some(50));
        assert_eq!(options.log_level.as_deref(), Some("debug"));
        assert_eq!(options.access_log, Some(true));
    }

    #[test]
    fn a_bad_value_names_the_variable() {
        let failure = read(&Env::from([("JITNEY_PORT", "many")])).expect_err("refused");
        assert!(failure.message.starts_with("JITNEY_PORT: invalid value 'many'"), "{failure}");
    }

    #[test]
    fn an_unknown_variable_is_remarked_on_with_the_nearest_name() {
        let variables = read(&Env::from([("JITNEY_PYTON", "x")])).expect("reads");
        assert!(
            variables.remarks[0].contains("did you mean `JITNEY_PYTHON`?"),
            "{:?}",
            variables.remarks
        );
    }

    #[test]
    fn what_kubernetes_sets_beside_a_service_is_left_alone() {
        let env = Env::from([
            ("JITNEY_PORT", "tcp://10.0.0.1:8080"),
            ("JITNEY_SERVICE_HOST", "10.0.0.1"),
            ("JITNEY_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ]);
        let variables = read(&env).expect("reads");
        assert_eq!(variables.options, Options::default());
        assert!(variables.remarks.is_empty());
    }
}
