//! `jitney doctor`: what this machine has and lacks for a server, one finding per line, each with what
//! to do. It changes nothing and opens no port longer than to see that it is free.

mod files;
mod finding;
mod gpus;
mod interpreter;
mod limits;
mod ports;
mod running;

use serde_json::json;

use crate::console;
use crate::env::Env;
use crate::failure::{FAILED, Failure};
use crate::flags::ServeFlags;
use crate::flags::doctor::DoctorFlags;
use crate::flags::settings::{SettingFlags, flag_values, path_value};
use crate::onnx_library;
use crate::remote::words::counted;
use crate::serve::{self, ServeConfig};
use finding::{Finding, FindingLevel};
use jitney_settings::server::{MODEL_STORE, PYTHON};

/// Runs every check.
pub fn main(flags: &DoctorFlags, env: &Env) -> Result<u8, Failure> {
    let mut findings = vec![program()];
    let config = match configuration(flags, env) {
        Ok(config) => {
            let remarks = config.remarks.iter().map(|remark| {
                Finding::note("Settings", remark.clone(), "see docs/reference/settings.md")
            });
            findings.extend(remarks);
            config.values
        }
        Err(failure) => {
            let advice =
                failure.hint.unwrap_or_else(|| "correct it, then run this again".to_owned());
            findings.push(Finding::problem("Settings", failure.message, advice));
            flags.addresses.0.clone().or_defaults(jitney_settings::server::SETTINGS)
        }
    };
    let python = flags.python.clone().or_else(|| env.path("JITNEY_PYTHON"));
    findings.extend(files::models(&flags.models));
    findings.extend(interpreter::check(python.as_deref(), env));
    findings.extend(gpus::check(env));
    findings.push(interpreter::onnx(python.as_deref(), env));
    let server = running::look(&flags.server, env);
    findings.extend(ports::check(&config, server.pid));
    findings.extend(limits::check());
    findings.extend(files::check(&config, env));
    findings.push(server.finding);
    report(&findings, flags.server.json);
    let problem = findings.iter().any(|finding| finding.level == FindingLevel::Problem);
    Ok(if problem { FAILED } else { 0 })
}

/// The settings that `jitney serve` would have here. Models are looked at one by one elsewhere.
fn configuration(flags: &DoctorFlags, env: &Env) -> Result<ServeConfig, Failure> {
    let own = flag_values([
        (&PYTHON, "python", path_value(flags.python.as_deref())),
        (&MODEL_STORE, "model-store", path_value(flags.model_store.as_deref())),
    ]);
    let settings = SettingFlags(flags.addresses.0.clone().or(&own));
    let config = flags.config.clone();
    serve::configure(ServeFlags { config, settings, ..ServeFlags::default() }, env)
}

fn program() -> Finding {
    let build = if cfg!(debug_assertions) { "debug build, slow" } else { "release build" };
    let linked = if onnx_library::IS_STATIC { ", static" } else { "" };
    let text = format!(
        "jitney {}, {build}{linked}, for {} {}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS
    );
    if cfg!(debug_assertions) {
        Finding::note("Program", text, "cargo build --release makes a fast one")
    } else {
        Finding::ok("Program", text)
    }
}

fn report(findings: &[Finding], as_json: bool) {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (problems, notes) = (count(FindingLevel::Problem), count(FindingLevel::Note));
    if as_json {
        let document = json!({ "findings": findings, "problems": problems, "notes": notes });
        console::out(format!("{document:#}"));
        return;
    }
    let mut area = "";
    for finding in findings {
        if finding.area != area {
            area = finding.area;
            console::out(area);
        }
        console::out(format!("  {:<8} {}", finding.level.word(), finding.text));
        if let Some(advice) = &finding.advice {
            console::out(format!("           -> {advice}"));
        }
    }
    let (problems, notes) = (counted(problems as u64, "problem"), counted(notes as u64, "note"));
    console::out(format!("\n{problems}, {notes}"));
}
