//! The environment of the workers: the server's, without what the operator hides and without the
//! server's own secrets. User code runs in there.

use std::ffi::OsString;

use regex::Regex;

use crate::env::Env;
use crate::failure::Failure;
use crate::url_rule::whole;

/// Which variables stay with the server.
#[derive(Debug, Default)]
pub struct Hidden(Option<Regex>);

impl Hidden {
    /// Hides names that match the pattern as a whole (`blacklist_env_vars`), besides our secrets.
    pub fn pattern(text: Option<&str>) -> Result<Self, Failure> {
        text.map(|text| whole("blacklist_env_vars", text)).transpose().map(Self)
    }

    fn hides(&self, name: &str) -> bool {
        let secret = name.starts_with("JITNEY_") && name.contains("TOKEN");
        secret || self.0.as_ref().is_some_and(|pattern| pattern.is_match(name))
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

    #[test]
    fn workers_see_neither_hidden_variables_nor_our_secrets() {
        let env = Env::from([
            ("EXAM_SECRET_KEY", "x"),
            ("MY_EXAM_SECRET", "seen"),
            ("JITNEY_MANAGEMENT_TOKEN", "x"),
            ("PATH", "seen"),
        ]);
        let hidden = Hidden::pattern(Some("EXAM_SECRET.*")).expect("reads");
        let names: Vec<_> = hidden.filter(&env).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["MY_EXAM_SECRET", "PATH"]);
    }
}
