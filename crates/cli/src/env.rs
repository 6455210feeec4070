//! The process environment, captured once at the start and passed on as a value, so that tests bring
//! a map of their own. Nothing else in the product asks the operating system for a variable.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use regex::Regex;

use crate::failure::Failure;
use crate::url_rule::whole;

/// The environment as it was when the process started.
#[derive(Clone, Debug, Default)]
pub struct Env(BTreeMap<OsString, OsString>);

impl Env {
    /// Takes the environment of this process.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads it")]
    pub fn capture() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// A variable as text; one that is not UTF-8 counts as absent.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(OsStr::new(name)).and_then(|value| value.to_str())
    }

    /// A variable that names a path; an empty one counts as absent.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.get(OsStr::new(name)).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// Every variable, in order of its name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }

    /// Where temporary files go: the first of `TMPDIR`, `TEMP`, `TMP` that is a directory, then
    /// `/tmp`. This is Python's rule, and the pid file's place depends on it.
    pub fn temp_dir(&self) -> PathBuf {
        let named = ["TMPDIR", "TEMP", "TMP"].iter().filter_map(|name| self.path(name));
        named.into_iter().find(|path| path.is_dir()).unwrap_or_else(|| PathBuf::from("/tmp"))
    }

    /// Whether coloured output is unwelcome (`NO_COLOR`, any value that is not empty).
    pub fn no_color(&self) -> bool {
        self.0.get(OsStr::new("NO_COLOR")).is_some_and(|value| !value.is_empty())
    }
}

/// What the service manager tells the server alone.
const OF_THE_MANAGER: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
];

/// Which variables stay with the server: what the operator hides, and the server's own secrets. User
/// code runs in the workers.
#[derive(Debug, Default)]
pub struct Hidden(Option<Regex>);

impl Hidden {
    /// Hides names that match the pattern as a whole (`blacklist_env_vars`), besides our secrets.
    pub fn pattern(text: Option<&str>) -> Result<Self, Failure> {
        text.map(|text| whole("blacklist_env_vars", text)).transpose().map(Self)
    }

    fn hides(&self, name: &str) -> bool {
        let secret = name.starts_with("JITNEY_") && name.contains("TOKEN");
        let own = secret || OF_THE_MANAGER.contains(&name);
        own || self.0.as_ref().is_some_and(|pattern| pattern.is_match(name))
    }

    /// What workers see.
    pub fn filter(&self, env: &Env) -> Vec<(OsString, OsString)> {
        let visible = env.iter().filter(|(name, _)| !self.hides(&name.to_string_lossy()));
        visible.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Env {
        /// The same with one more variable.
        pub fn with(mut self, name: &str, value: &str) -> Self {
            self.0.insert(name.into(), value.into());
            self
        }
    }

    impl<const N: usize> From<[(&str, &str); N]> for Env {
        fn from(pairs: [(&str, &str); N]) -> Self {
            Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
        }
    }

    #[test]
    fn the_temporary_directory_follows_pythons_order() {
        let env = Env::from([("TEMP", "/usr"), ("TMPDIR", "/etc"), ("TMP", "/")]);
        assert_eq!(env.temp_dir(), PathBuf::from("/etc"));
        let env = Env::from([("TEMP", "/usr"), ("TMPDIR", "/no/such/place")]);
        assert_eq!(env.temp_dir(), PathBuf::from("/usr"));
        assert_eq!(Env::default().temp_dir(), PathBuf::from("/tmp"));
    }

    #[test]
    fn an_empty_no_color_does_not_count() {
        assert!(!Env::from([("NO_COLOR", "")]).no_color());
        assert!(Env::from([("NO_COLOR", "1")]).no_color());
    }

    #[test]
    fn workers_see_neither_hidden_variables_nor_our_secrets() {
        let env = Env::from([
            ("EXAM_SECRET_KEY", "x"),
            ("MY_EXAM_SECRET", "seen"),
            ("NOTIFY_SOCKET", "/run/systemd/notify"),
            ("JITNEY_MANAGEMENT_TOKEN", "x"),
            ("PATH", "seen"),
        ]);
        let hidden = Hidden::pattern(Some("EXAM_SECRET.*")).expect("reads");
        let names: Vec<_> = hidden.filter(&env).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["MY_EXAM_SECRET", "PATH"]);
    }
}
