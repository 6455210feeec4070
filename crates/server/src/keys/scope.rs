//! What a key may do: rights, each for all models or for those whose names fit a pattern.

use std::fmt;
use std::str::FromStr;

use crate::auth::{Gate, GuardedOperation};
/// What a key can be good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Predictions, and reading what the server and its models are.
    Predict,
    /// Explanations, and the same.
    Explain,
    /// Models, workers, settings and the log.
    Manage,
    /// The metrics.
    Metrics,
}

impl Right {
    const WORDS: [(&'static str, Self); 4] = [
        ("predict", Self::Predict),
        ("explain", Self::Explain),
        ("manage", Self::Manage),
        ("metrics", Self::Metrics),
    ];

    /// The rights of which one is needed.
    fn needed(gate: Gate, operation: GuardedOperation) -> &'static [Self] {
        use GuardedOperation::{Connect, Endpoint, Explain, Predict, RunWorkflow, ShareMemory};
        let predicts = [Predict, RunWorkflow, Connect, ShareMemory, Endpoint];
        match gate {
            // The keys of TorchServe's file are renewed by the one among them that is for it.
            Gate::Open | Gate::Renewal => &[],
            Gate::Metrics => &[Self::Metrics],
            Gate::Management => &[Self::Manage],
            Gate::Either => &[Self::Predict, Self::Explain, Self::Manage],
            Gate::Inference if operation == Explain => &[Self::Explain],
            Gate::Inference if predicts.contains(&operation) => &[Self::Predict],
            Gate::Inference => &[Self::Predict, Self::Explain],
        }
    }
}

/// Whether an operation without a model in its path is about all of them, or about what they share.
fn spans_models(operation: GuardedOperation) -> bool {
    use GuardedOperation::{
        Endpoint, List, ListWorkflows, ReadLog, Register, RegisterWorkflow, SetLogLevel,
    };
    let wide = [List, ListWorkflows, Register, RegisterWorkflow, ReadLog, SetLogLevel, Endpoint];
    wide.contains(&operation)
}

/// One right, for the models that fit: `predict`, `predict:resnet*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    right: Right,
    /// `*` stands for any characters.
    models: Box<str>,
}

impl Scope {
    /// Whether it is enough for an operation behind a gate. The model, or the workflow, is not known where the path
    /// does not name it.
    pub(super) fn allows(
        &self,
        gate: Gate,
        operation: GuardedOperation,
        model: Option<&str>,
    ) -> bool {
        let everywhere = &*self.models == "*";
        let fits = match model {
            Some(name) => everywhere || fits(&self.models, name),
            None => everywhere || !spans_models(operation),
        };
        fits && Right::needed(gate, operation).contains(&self.right)
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, models) = text.split_once(':').unwrap_or((text, "*"));
        let right = Right::WORDS.iter().find(|(known, _)| *known == word);
        match right {
            Some((_, right)) if !models.is_empty() => {
                Ok(Self { right: *right, models: models.into() })
            }
            Some(_) | None => Err(
                "a scope is predict, explain, manage or metrics, for some models with a pattern \
                      of their names behind it, such as predict:resnet*"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Right::WORDS.iter().find(|(_, right)| *right == self.right);
        out.write_str(word.map_or("", |(word, _)| word))?;
        if &*self.models == "*" { Ok(()) } else { write!(out, ":{}", self.models) }
    }
}

/// Whether a name fits a pattern in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let Some((middle, last)) = rest.rsplit_once('*') else { return left.ends_with(rest) };
    for part in middle.split('*') {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use GuardedOperation as Op;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("m", "m", true),
            ("m", "mm", false),
            ("*", "", true),
            ("m*", "m", true),
            ("m*", "resm", false),
            ("*net", "resnet", true),
            ("*net", "netz", false),
            ("a*b", "ab", true),
            ("ab*ba", "aba", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "acb", false),
            ("a*bc*bc", "abc", false),
            ("a**c", "abc", true),
            ("\u{fc}*", "\u{fc}n", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn scopes_are_read_and_shown_alike() {
        for text in ["predict", "explain:a", "manage:a*b", "metrics"] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        assert_eq!("predict:*".parse::<Scope>().unwrap().to_string(), "predict");
        for wrong in ["", "Predict", "write", "predict:", "predict m", ":m"] {
            assert!(wrong.parse::<Scope>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_right_opens_its_own_operations() {
        let (use_, manage, either) = (Gate::Inference, Gate::Management, Gate::Either);
        let m = Some("m");
        for (scopes, gate, operation, model, expected) in [
            ("predict", use_, Op::Predict, m, true),
            ("predict:m", use_, Op::Predict, m, true),
            ("predict:n*", use_, Op::Predict, m, false),
            ("predict", use_, Op::Explain, m, false),
            ("explain", use_, Op::Explain, m, true),
            ("explain", use_, Op::Predict, m, false),
            ("explain", use_, Op::Metadata, m, true),
            ("explain", use_, Op::Connect, None, false),
            ("predict:n", use_, Op::Connect, None, true),
            ("predict:n", use_, Op::Health, None, true),
            ("predict", use_, Op::Endpoint, None, true),
            ("predict:n", use_, Op::Endpoint, None, false),
            ("manage", use_, Op::Predict, m, false),
            ("manage", manage, Op::Scale, m, true),
            ("manage:n", manage, Op::Scale, m, false),
            ("manage:m", manage, Op::List, None, false),
            ("manage:m", manage, Op::Register, None, false),
            ("manage:m", manage, Op::Register, m, true),
            ("manage", manage, Op::SetLogLevel, None, true),
            ("manage:m", manage, Op::ReadLog, None, false),
            ("predict", manage, Op::Describe, m, false),
            ("predict:m", either, Op::Describe, m, true),
            ("predict:m", either, Op::List, None, false),
            ("manage", Gate::Metrics, Op::Public, None, false),
            ("metrics", Gate::Metrics, Op::Public, None, true),
            ("metrics", use_, Op::Metadata, None, false),
            ("manage", Gate::Renewal, Op::RenewToken, None, false),
        ] {
            let scope: Scope = scopes.parse().unwrap();
            let allowed = scope.allows(gate, operation, model);
            assert_eq!(allowed, expected, "{scopes} {gate:?} {operation:?} {model:?}");
        }
    }
}
