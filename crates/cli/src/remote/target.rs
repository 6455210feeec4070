//! `MODEL` or `MODEL/VERSION`, as users type it.

use crate::failure::Failure;

/// A model, and the version that is meant; none means the default one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTarget {
    /// The model.
    pub model: String,
    /// Its version.
    pub version: Option<String>,
}

impl ModelTarget {
    /// Splits at the slash.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let (model, version) = match text.split_once('/') {
            Some((model, version)) => (model, Some(version)),
            None => (text, None),
        };
        let odd = version.is_some_and(|version| version.is_empty() || version.contains('/'));
        if model.is_empty() || odd {
            return Err(Failure::usage(format!("\"{text}\" names no model"))
                .hint("write MODEL or MODEL/VERSION, such as resnet/2.0"));
        }
        Ok(Self { model: model.to_owned(), version: version.map(str::to_owned) })
    }

    /// Whether it means this version.
    pub fn matches(&self, name: &str, version: &str) -> bool {
        self.model == name && self.version.as_deref().is_none_or(|wanted| wanted == version)
    }
}

impl std::fmt::Display for ModelTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.model)?;
        self.version.as_deref().map_or(Ok(()), |version| write!(f, " version {version}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_follows_a_slash() {
        let parsed = ModelTarget::parse("m/1.0").expect("reads");
        assert_eq!((parsed.model.as_str(), parsed.version.as_deref()), ("m", Some("1.0")));
        assert!(parsed.matches("m", "1.0") && !parsed.matches("m", "2.0"));
        assert!(ModelTarget::parse("m").expect("reads").matches("m", "2.0"));
        for wrong in ["", "/1.0", "m/", "m/1/2"] {
            assert!(ModelTarget::parse(wrong).is_err(), "{wrong}");
        }
    }
}
