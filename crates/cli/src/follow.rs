//! Files that are read again while the server runs: keys, certificates.
//!
//! What they say is compared, not their times: a mounted secret is a link that is switched to another directory.

use std::path::Path;
use std::time::Duration;

/// How often they are looked at: so long a revoked key may still be used.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Puts in force what the files say whenever they say something else than before; without end. What cannot be
/// read or used changes nothing, and is one line of the log. `file` is the one that the lines name.
pub async fn follow<T: PartialEq>(
    file: &Path,
    seen: T,
    read: impl Fn() -> Result<T, String>,
    apply: impl Fn(&T) -> Result<(), String>,
) {
    let (file, mut seen) = (file.display(), Ok(seen));
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let now = read();
        if now == seen {
            continue;
        }
        match now.as_ref().map_err(String::clone).and_then(&apply) {
            Ok(()) => tracing::info!(%file, "the file has changed, and is in force as it is now"),
            Err(why) => tracing::error!(%file, "what was read before stays in force: {why}"),
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
            Ok(())
        };
        let following = follow(Path::new("file"), Some("a"), read, apply);
        assert!(tokio::time::timeout(CHECK_EVERY * 9, following).await.is_err(), "has no end");
        let expected = [Some("b"), Some("b"), Some("c"), None];
        assert_eq!(*applied.lock().expect("a lock"), expected);
    }
}
