//! Files that are read again while the server runs: keys, certificates.
//!
//! What they say is compared, not their times: a mounted secret is a link that is switched to another directory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jitney_server::FieldChanges;
use jitney_telemetry::{AuditLog, AuditOutcome};

/// How often they are looked at: so long a revoked key may still be used.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Where it is noted what a file has changed.
pub struct FileAudit {
    /// The audit log, if there is one.
    pub log: Option<Arc<AuditLog>>,
    /// The setting that names the file.
    pub setting: &'static str,
}

/// Puts in force what the files say whenever they say something else than before; without end. What cannot be
/// read or used changes nothing. Either is one line of the log, and of the audit log. `file` is the one that the lines
/// name; `apply` says what it changed.
pub async fn follow<T: PartialEq>(
    file: &Path,
    audit: FileAudit,
    seen: T,
    read: impl Fn() -> Result<T, String>,
    apply: impl Fn(&T) -> Result<FieldChanges, String>,
) {
    let (file, mut seen) = (file.display().to_string(), Ok(seen));
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let now = read();
        if now == seen {
            continue;
        }
        let applied = now.as_ref().map_err(String::clone).and_then(&apply);
        match &applied {
            Ok(_) => tracing::info!(file, "the file has changed, and is in force as it is now"),
            Err(why) => tracing::error!(file, "what was read before stays in force: {why}"),
        }
        if let Some(log) = &audit.log {
            let outcome = applied.as_ref().map_or(AuditOutcome::Failed, |_| AuditOutcome::Done);
            log.write_followed(audit.setting, &file, outcome, applied.unwrap_or_default());
        }
        seen = now;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_changes_is_applied_once_and_what_is_broken_is_not() {
        let said = Mutex::new(["a", "a", "b", "broken", "broken", "b", "c"].iter());
        let applied = Mutex::new(Vec::new());
        let read = || match said.lock().expect("a lock").next().copied() {
            Some("broken") => Err("broken".to_owned()),
            said => Ok(said),
        };
        let apply = |text: &Option<&'static str>| {
            applied.lock().expect("a lock").push(*text);
            Ok(FieldChanges::default())
        };
        let audit = FileAudit { log: None, setting: "keys" };
        let following = follow(Path::new("file"), audit, Some("a"), read, apply);
        assert!(tokio::time::timeout(CHECK_EVERY * 9, following).await.is_err(), "has no end");
        let expected = [Some("b"), Some("b"), Some("c"), None];
        assert_eq!(*applied.lock().expect("a lock"), expected);
    }
}
