//! The server that runs, if one does.

use jitney_telemetry::overview::OverviewDocument;

use super::finding::Finding;
use crate::env::Env;
use crate::failure::{Failure, UNREACHABLE};
use crate::flags::remote::ServerFlags;
use crate::remote::client::RemoteClient;
use crate::remote::{self, block_on};

const AREA: &str = "Server";

/// What was found.
pub struct RunningServer {
    /// Its process, where it says so.
    pub pid: Option<u32>,
    /// How it stands.
    pub finding: Finding,
}

/// Asks the server that the flags name.
pub fn look(flags: &ServerFlags, env: &Env) -> RunningServer {
    let client = match RemoteClient::new(flags, env) {
        Ok(client) => client,
        Err(failure) => return RunningServer { pid: None, finding: unanswered(failure) },
    };
    match block_on(remote::overview(&client)) {
        Err(failure) => RunningServer { pid: None, finding: unanswered(failure) },
        Ok((_, overview)) => RunningServer {
            pid: Some(overview.server.pid).filter(|pid| *pid != 0),
            finding: standing(&client.address(), &overview),
        },
    }
}

/// That no server runs is as it should be before one is started.
fn unanswered(failure: Failure) -> Finding {
    if failure.code == UNREACHABLE && failure.message.starts_with("cannot reach") {
        return Finding::ok(AREA, format!("none runs: {}", failure.message));
    }
    let advice = failure.hint.unwrap_or_else(|| "see the server's log".to_owned());
    Finding::note(AREA, failure.message, advice)
}

fn standing(address: &str, overview: &OverviewDocument) -> Finding {
    let server = &overview.server;
    let text = format!(
        "jitney {} at {address} is {}, with {} models",
        server.version,
        server.state,
        overview.models.len()
    );
    if server.is_ready() {
        return Finding::ok(AREA, text);
    }
    let broken = overview.models.iter().find(|model| model.state == "failed");
    let reason = broken.and_then(|model| model.last_error.as_deref()).unwrap_or(&server.state_text);
    Finding::problem(
        AREA,
        format!("{text}: {}", remote::words::shortened(reason, 200)),
        "`jitney status` and `jitney logs --level warn` say more",
    )
}
