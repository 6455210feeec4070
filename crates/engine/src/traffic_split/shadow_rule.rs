//! A version that gets copies of requests which another one answers, as operators write it: `{version: "2.0",
//! share: 100, same: numbers(0.001)}`.

use serde::{Deserialize, Deserializer, Serialize};

use super::{draw, hash};

/// The most pairs of answers that may be kept.
const SAMPLES_MAX: usize = 100;

/// Told apart from the numbers that choose among versions, so that not always the same clients are copied.
const COPIES: &str = "copies";

/// Which requests are copied, and when two answers are the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowRule {
    /// The version that gets the copies.
    #[serde(deserialize_with = "version")]
    pub version: String,
    /// How many percent of the requests are copied.
    #[serde(default = "all")]
    pub share: f64,
    /// When two answers are the same.
    #[serde(default, skip_serializing_if = "SameRule::is_default")]
    pub same: SameRule,
}

/// When the answers of two versions are the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SameRule {
    /// Byte by byte.
    #[default]
    Equal,
    /// Their numbers differ by at most this, or by this part of the larger one; all else is equal.
    Numbers(f64),
    /// The largest of their numbers has the same name or position, row by row.
    Top1,
    /// What the model of this name says about both.
    Model(String),
}

fn all() -> f64 {
    100.0
}

/// YAML reads a bare `2.0` as a number.
fn version<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    let text = value.as_str().map(str::to_owned);
    let text = text.or_else(|| value.as_number().map(ToString::to_string));
    text.ok_or_else(|| serde::de::Error::custom(format!("a version is a text, not {value}")))
}

impl SameRule {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The model that is asked.
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Model(name) => Some(name),
            Self::Equal | Self::Numbers(_) | Self::Top1 => None,
        }
    }
}

impl TryFrom<String> for SameRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let named = text.strip_suffix(')').and_then(|text| text.split_once('('));
        let rule = match (text.as_str(), named) {
            ("equal", _) => Some(Self::Equal),
            ("top1", _) => Some(Self::Top1),
            (_, Some(("numbers", number))) => number.parse().ok().map(Self::Numbers),
            (_, Some(("model", name))) => Some(Self::Model(name.to_owned())),
            _ => None,
        };
        let sound = |rule: &Self| match rule {
            Self::Numbers(tolerance) => tolerance.is_finite() && *tolerance >= 0.0,
            Self::Model(name) => !name.is_empty(),
            Self::Equal | Self::Top1 => true,
        };
        rule.filter(sound).ok_or_else(|| {
            format!(
                "same must be equal, top1, numbers(TOLERANCE) such as numbers(0.001), or model(NAME), not {text:?}"
            )
        })
    }
}

impl From<SameRule> for String {
    fn from(rule: SameRule) -> Self {
        match rule {
            SameRule::Equal => "equal".to_owned(),
            SameRule::Numbers(tolerance) => format!("numbers({tolerance})"),
            SameRule::Top1 => "top1".to_owned(),
            SameRule::Model(name) => format!("model({name})"),
        }
    }
}

impl ShadowRule {
    /// Whether a request with this hash is copied.
    pub fn takes(&self, key: u64) -> bool {
        draw(key ^ hash(COPIES.as_bytes()), &self.version) * 100.0 < self.share
    }

    /// What is wrong with it, if anything.
    pub(super) fn check(&self, samples: usize) -> Result<(), String> {
        if !(self.share > 0.0 && self.share <= 100.0) {
            return Err("the share of a shadow is a percentage above 0, at most 100".to_owned());
        }
        if samples > SAMPLES_MAX {
            return Err(format!("shadow_samples may be at most {SAMPLES_MAX}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_operators_write_them_or_explained() {
        for (text, written) in [
            (r#"{"version":"2.0"}"#, Ok(r#"{"version":"2.0","share":100.0}"#)),
            (
                r#"{"version":2.0,"share":5,"same":"numbers(0.01)"}"#,
                Ok(r#"{"version":"2.0","share":5.0,"same":"numbers(0.01)"}"#),
            ),
            (
                r#"{"version":"2.0","same":"model(compare)"}"#,
                Ok(r#"{"version":"2.0","share":100.0,"same":"model(compare)"}"#),
            ),
            (r#"{"version":"2.0","same":"nearly"}"#, Err("same must be equal, top1, numbers")),
            (r#"{"version":"2.0","same":"model()"}"#, Err("or model(NAME)")),
            (r#"{"version":"2.0","same":"numbers(-1)"}"#, Err("same must be equal")),
            (r#"{"version":["2.0"]}"#, Err("a version is a text")),
            (r#"{"share":5}"#, Err("missing field `version`")),
        ] {
            match (serde_json::from_str::<ShadowRule>(text), written) {
                (Ok(rule), Ok(written)) => {
                    assert_eq!(serde_json::to_string(&rule).unwrap(), written);
                }
                (Err(why), Err(words)) => assert!(why.to_string().contains(words), "{why}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
    }

    #[test]
    fn a_share_is_what_was_asked_for_and_goes_by_the_client() {
        let rule = |share| ShadowRule { version: "2.0".to_owned(), share, same: SameRule::Equal };
        let takes = |share, user: u32| rule(share).takes(hash(format!("user-{user}").as_bytes()));
        let taken = (0..20_000).filter(|user| takes(30.0, *user)).count();
        assert!((5_700..6_300).contains(&taken), "{taken} of 20000");
        assert!((0..20_000).all(|user| takes(100.0, user)));
        assert!((0..20_000).all(|user| !takes(10.0, user) || takes(30.0, user)));
    }
}
