//! When a new version goes back or forward by itself, as operators write it: `errors: +1%`, `p99: 1.5x`, and
//! `10% 30% 60% 100% every 10m`.

use std::time::Duration;

use jitney_settings::{SettingKind, SettingValue, TimeUnit};
use serde::{Deserialize, Serialize};

/// Requests of the new version before it is judged, where the operator does not say. Chosen: at 10 % of 100 requests/s
/// they take 20 s.
const AFTER: u64 = 200;

/// What a new version may do worse than the old one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ReturnText", into = "ReturnText")]
pub struct ReturnRule {
    /// How much larger the share of requests that fail may be.
    pub errors: Option<f64>,
    /// How many times the p99 of the old version 99 of 100 answers may take.
    pub p99: Option<f64>,
    /// Which share of the answers of a shadow may differ.
    pub different: Option<f64>,
    /// Requests of the new version before it is judged.
    pub after: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReturnText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    errors: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p99: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    different: Option<String>,
    #[serde(default = "after")]
    after: u64,
}

fn after() -> u64 {
    AFTER
}

fn percent(text: &str) -> Option<f64> {
    let number = text.trim_start_matches('+').strip_suffix('%')?.parse::<f64>().ok()?;
    (0.0..=100.0).contains(&number).then_some(number)
}

impl TryFrom<ReturnText> for ReturnRule {
    type Error = &'static str;

    fn try_from(text: ReturnText) -> Result<Self, &'static str> {
        let part = |text: Option<String>, wrong| {
            text.map(|text| percent(&text).map(|it| it / 100.0).ok_or(wrong)).transpose()
        };
        let errors = part(text.errors, "return: errors must be such as +1%")?;
        let different = part(text.different, "return: different must be such as 5%")?;
        let factor = |p99: String| p99.strip_suffix('x')?.parse().ok().filter(|it| *it >= 1.0);
        let p99 = text.p99.map(|p99| factor(p99).ok_or("return: p99 must be such as 1.5x"));
        let p99 = p99.transpose()?;
        if errors.is_none() && p99.is_none() && different.is_none() {
            return Err("return: it must say errors, p99 or different");
        }
        Ok(Self { errors, p99, different, after: text.after })
    }
}

impl From<ReturnRule> for ReturnText {
    fn from(ReturnRule { errors, p99, different, after }: ReturnRule) -> Self {
        let percent = |part: f64| format!("{}%", (part * 1e8).round() / 1e6);
        let errors = errors.map(|errors| format!("+{}", percent(errors)));
        let (p99, different) = (p99.map(|p99| format!("{p99}x")), different.map(percent));
        Self { errors, p99, different, after }
    }
}

impl ReturnRule {
    /// What is left of it without a shadow.
    pub(super) fn without_different(self) -> Option<Self> {
        let judges = self.errors.is_some() || self.p99.is_some();
        judges.then_some(Self { different: None, ..self })
    }

    /// What of it holds for a shadow: its answers are not waited for, so their times say nothing.
    pub(crate) fn for_shadow(self) -> Self {
        Self { p99: None, ..self }
    }
}

/// How the share of a new version grows while it is not worse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Promotion {
    /// Percentages, ascending; with 100 it becomes the default.
    pub steps: Vec<f64>,
    /// How long it stays at each.
    pub every: Duration,
}

impl TryFrom<String> for Promotion {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let read = || {
            let (steps, every) = text.split_once(" every ")?;
            let steps: Vec<_> = steps.split_whitespace().map(percent).collect::<Option<_>>()?;
            let every = SettingKind::Time(TimeUnit::Seconds).parse(every).ok()?;
            let SettingValue::Time(every) = every else { return None };
            let ascending = steps.first()? > &0.0 && steps.is_sorted_by(|a, b| a < b);
            (ascending && !every.is_zero()).then_some(Self { steps, every })
        };
        let wrong = || format!("promote must be such as \"10% 30% 100% every 10m\", not {text:?}");
        read().ok_or_else(wrong)
    }
}

impl From<Promotion> for String {
    fn from(Promotion { steps, every }: Promotion) -> Self {
        let steps: Vec<_> = steps.iter().map(|step| format!("{step}%")).collect();
        format!("{} every {}s", steps.join(" "), every.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_operators_write_them_or_explained() {
        for (text, written) in [
            (r#"{"errors":"+1%"}"#, Ok(r#"{"errors":"+1%","after":200}"#)),
            (r#"{"p99":"1.5x","after":50}"#, Ok(r#"{"p99":"1.5x","after":50}"#)),
            (r#"{"errors":"0.07%"}"#, Ok(r#"{"errors":"+0.07%","after":200}"#)),
            (r#"{"different":"5%"}"#, Ok(r#"{"different":"5%","after":200}"#)),
            (r#"{"different":"many"}"#, Err("different must be such as 5%")),
            ("{}", Err("it must say errors, p99 or different")),
            (r#"{"errors":"1"}"#, Err("errors must be such as +1%")),
            (r#"{"p99":"0.5x"}"#, Err("p99 must be such as 1.5x")),
            (r#"{"p95":"2x"}"#, Err("unknown field `p95`")),
        ] {
            match (serde_json::from_str::<ReturnRule>(text), written) {
                (Ok(rule), Ok(written)) => {
                    assert_eq!(serde_json::to_string(&rule).unwrap(), written);
                }
                (Err(why), Err(words)) => assert!(why.to_string().contains(words), "{why}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
    }

    #[test]
    fn steps_ascend_and_take_their_time() {
        let read = |text: &str| Promotion::try_from(text.to_owned());
        let promotion = read("10% 30% 100% every 10m").unwrap();
        assert_eq!(promotion.steps, [10.0, 30.0, 100.0]);
        assert_eq!(String::from(promotion), "10% 30% 100% every 600s");
        for wrong in ["", "10% 5% every 1m", "10%", "10 20 every 1m", "10% every 0s", " every 1m"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
