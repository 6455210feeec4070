//! The process environment, captured once at the start and passed on as a value, so that tests bring
//! a map of their own. Nothing else in the product asks the operating system for a variable.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

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
}
