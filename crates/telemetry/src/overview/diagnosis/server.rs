//! What is wrong with the server as a whole and with its machine.

use super::words::{bytes, percent};
use crate::overview::document::{MachineOverview, OverviewDocument};
use crate::overview::problem::{ProblemTone, ServerProblem};
use crate::overview::server_entry::ServerOverview;

/// Shares of memory and disk that are in use: a warning, and bad.
const MEMORY: (f64, f64) = (0.92, 0.97);
const DISK: (f64, f64) = (0.98, 0.995);
const GPU_MEMORY: f64 = 0.97;
const REQUEST_MEMORY: f64 = 0.8;

pub(super) fn problems(document: &OverviewDocument) -> Vec<ServerProblem> {
    let OverviewDocument { server, machine, gpus, .. } = document;
    let mut found = Vec::new();
    if server.state == "draining" {
        found.push(problem(
            ProblemTone::Warn,
            "The server is shutting down: new requests are rejected.".to_owned(),
            "It ends when the requests that wait are answered.",
        ));
    }
    found.extend(machine.iter().flat_map(|machine| [disk(machine), memory(machine)]).flatten());
    found.extend(request_memory(server));
    for gpu in gpus {
        let total = gpu.memory_total_bytes.unwrap_or(0);
        let share = used(gpu.memory_used_bytes.unwrap_or(0), total);
        if share > GPU_MEMORY {
            let what = format!("The memory of GPU {} is {} full.", gpu.id, percent(share));
            let advice = "A larger batch or one more worker may not fit.";
            found.push(problem(ProblemTone::Note, what, advice));
        }
    }
    found
}

fn disk(machine: &MachineOverview) -> Option<ServerProblem> {
    let (free, total) = machine.disk_free_bytes.zip(machine.disk_total_bytes)?;
    let tone = tone(used(total.saturating_sub(free), total), DISK)?;
    let left = format!("{} of {} are left", bytes(free as f64), bytes(total as f64));
    let what = format!("The disk of the machine is full: {left}.");
    let advice =
        "Models that write files fail, and so do downloads and the log. Remove files, or add room.";
    Some(problem(tone, what, advice))
}

fn memory(machine: &MachineOverview) -> Option<ServerProblem> {
    let share = used(machine.memory_used_bytes, machine.memory_total_bytes);
    let tone = tone(share, MEMORY)?;
    let left = machine.memory_total_bytes.saturating_sub(machine.memory_used_bytes);
    let what = format!(
        "The machine's memory is {} full: {} are left.",
        percent(share),
        bytes(left as f64)
    );
    let advice = "The kernel may kill workers. See which of them grows, or run fewer workers.";
    Some(problem(tone, what, advice))
}

fn request_memory(server: &ServerOverview) -> Option<ServerProblem> {
    let (held, limit) = (server.request_memory_bytes, server.request_memory_limit_bytes);
    let what = format!(
        "Requests and answers hold {} of the {} that are allowed.",
        bytes(held as f64),
        bytes(limit as f64)
    );
    let advice = "Slow clients or large bodies: new requests are rejected when it is full (max_request_memory).";
    (used(held, limit) > REQUEST_MEMORY).then(|| problem(ProblemTone::Warn, what, advice))
}

fn used(used: u64, total: u64) -> f64 {
    if total > 0 { used as f64 / total as f64 } else { 0.0 }
}

fn tone(share: f64, (warn, bad): (f64, f64)) -> Option<ProblemTone> {
    let tone = if share > bad { ProblemTone::Bad } else { ProblemTone::Warn };
    (share > warn).then_some(tone)
}

fn problem(tone: ProblemTone, what: String, advice: &str) -> ServerProblem {
    ServerProblem { tone, what, advice: advice.to_owned(), ..ServerProblem::default() }
}
