//! Which version of which model this is and where it came from: what never changes about it, and which names are
//! possible.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::RegisterError;
use crate::settings::RegisterOptions;
use crate::store::{Sha256, ShownUrl};

/// What tells one model version from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelIdentity {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// As it was asked for, without its secrets; empty for the functions of a workflow.
    pub url: ShownUrl,
    /// The checksum that its file must have, where one was given.
    pub sha256: Option<Sha256>,
    /// Whether the server itself loaded it.
    pub at_startup: bool,
    /// The workflow that it is a node of.
    pub workflow: Option<String>,
    /// The names of classes, by output, where its repository has some.
    pub labels: Arc<BTreeMap<String, Vec<String>>>,
}

impl ModelIdentity {
    /// The caller's name and version win over the model's own; without a name there is no model. Every name of
    /// a model is checked here.
    pub(crate) fn settled(
        (own, own_version): (Option<&str>, &str),
        options: &RegisterOptions,
    ) -> Result<Self, RegisterError> {
        let given = options.model_name.as_deref().filter(|name| !name.is_empty());
        let name = given.or(own).ok_or(RegisterError::NoName)?;
        let version = options.version.as_deref().unwrap_or(own_version);
        check_name(name).and_then(|()| check_name(version)).map_err(RegisterError::BadSettings)?;
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            url: ShownUrl::of(&options.url),
            sha256: options.sha256,
            at_startup: options.at_startup,
            workflow: options.workflow.clone(),
            labels: Arc::clone(&options.labels),
        })
    }

    /// Whether it is a function of a workflow, which no archive of its own stands behind.
    pub fn is_function(&self) -> bool {
        self.workflow.is_some() && self.url.is_empty()
    }
}

/// The longest name, in bytes, as for files.
const NAME_BYTES_MAX: usize = 255;

/// Whether a model, a version or a workflow may be called so: the name has to be able to stand in a
/// path. Gives the reason why not.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let why = match name {
        "" => "it is empty",
        "." | ".." => "paths give it another meaning",
        _ if name.len() > NAME_BYTES_MAX => {
            return Err(format!("A name of more than {NAME_BYTES_MAX} bytes is not possible."));
        }
        _ if name.contains('/') => "it has a slash",
        _ if name.contains(char::is_control) => "it has a control character",
        _ => return Ok(()),
    };
    Err(format!("{name:?} cannot be a name: {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_can_stand_in_a_path() {
        let none = RegisterOptions::default();
        let long = "n".repeat(256);
        for name in ["", ".", "..", "a/b", "x/../y", "a\nb", "a\u{1b}[31m", "a\0", &long] {
            for given in [None, Some(name)] {
                let model_name = given.map(str::to_owned);
                let options = RegisterOptions { model_name, ..RegisterOptions::default() };
                let own = if given.is_some() { "fine" } else { name };
                let outcome = ModelIdentity::settled((Some(own), "1.0"), &options);
                let falls_back = given == Some("");
                assert_eq!(outcome.is_ok(), falls_back, "{name:?} {given:?}");
            }
            assert!(ModelIdentity::settled((Some("m"), name), &none).is_err(), "version {name:?}");
        }
        assert!(ModelIdentity::settled((Some("modèle 2.0-b_c"), "1.0"), &none).is_ok());
    }
}
