//! Compares two answers: here, by a rule; or by a model that is there for it (`same: model(NAME)`), so that a Python
//! function `same(old, new)` runs in a worker with a worker's limits, and never in the server.

use bytes::Bytes;
use jitney_engine::Engine;
use jitney_engine::call::{
    Call, CallRoute, HeaderBlock, Input, Origin, Output, Parameter, Priority,
};
use jitney_engine::shadow::ShadowOutcome;
use jitney_engine::traffic_split::SameRule;
use serde::de::IgnoredAny;

use super::plain_call;
use super::same_answer::{is_same, shown, status};

/// Answers of more bytes are compared apart from the threads that serve requests. Chosen: a few tens of microseconds.
const COMPARED_HERE_MAX: usize = 16 << 10;

/// The old answer and the new one.
pub(super) type AnswerPair = [Output; 2];

/// A request whose two answers are compared.
pub(super) struct AnswerComparison {
    pub(super) rule: SameRule,
    pub(super) id: String,
    pub(super) origin: Origin,
}

/// What can be told of two answers without asking anybody.
enum PairVerdict {
    Same,
    Different,
    /// Only a model can tell, which is asked with these.
    Ask(Vec<Parameter>),
}

impl AnswerComparison {
    /// What came of it, and both answers where they differ.
    pub(super) async fn run(
        self,
        engine: &Engine,
        pair: AnswerPair,
    ) -> (ShadowOutcome, Option<AnswerPair>) {
        let bytes = pair.iter().map(Output::bytes).sum::<usize>();
        let rule = self.rule.clone();
        let judge = move || (judged(&rule, &pair), pair);
        let judged = match bytes > COMPARED_HERE_MAX {
            true => tokio::task::spawn_blocking(judge).await.ok(),
            false => Some(judge()),
        };
        let Some((verdict, pair)) = judged else { return (ShadowOutcome::Uncompared, None) };
        let same = match verdict {
            PairVerdict::Same => Some(true),
            PairVerdict::Different => Some(false),
            PairVerdict::Ask(parameters) => self.asked(engine, parameters).await,
        };
        match same {
            Some(true) => (ShadowOutcome::Same, None),
            Some(false) => (ShadowOutcome::Different, Some(pair)),
            None => (ShadowOutcome::Uncompared, None),
        }
    }

    /// What the model says: `true` or `false`. Nothing else is an answer.
    async fn asked(self, engine: &Engine, parameters: Vec<Parameter>) -> Option<bool> {
        let model = engine.model(self.rule.model()?, None).ok()?;
        let (headers, route) = (HeaderBlock::new(), CallRoute::default());
        let input = Input { id: self.id, headers, route, parameters, tensors: None };
        let call = plain_call(Box::new(input), self.origin);
        let answer = model.call(Call { priority: Priority::Bulk, ..call }).await.ok()?;
        serde_json::from_slice(&answer.output.body).ok()
    }
}

fn judged(rule: &SameRule, pair: &AnswerPair) -> PairVerdict {
    let [old, new] = pair;
    match rule.model() {
        _ if is_same(rule, old, new) => PairVerdict::Same,
        Some(_) if status(old) == status(new) => {
            PairVerdict::Ask(vec![parameter("old", old), parameter("new", new)])
        }
        _ => PairVerdict::Different,
    }
}

/// An answer as the model gets it: the value where it is JSON or tensors, else its text, else its bytes.
fn parameter(name: &'static str, output: &Output) -> Parameter {
    let value = match output.tensors {
        Some(_) => Bytes::from(shown(output)),
        None => output.body.clone(),
    };
    let content_type = match std::str::from_utf8(&value) {
        Ok(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => "application/json",
        Ok(_) => "text/plain",
        Err(_) => "application/octet-stream",
    };
    Parameter { name: name.into(), content_type: content_type.into(), value: value.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(old: &'static [u8], new: &'static [u8]) -> Option<Vec<String>> {
        let output = |body| Output { body: Bytes::from_static(body), ..Output::default() };
        match judged(&SameRule::Model("compare".to_owned()), &[output(old), output(new)]) {
            PairVerdict::Ask(parameters) => {
                Some(parameters.iter().map(|it| it.content_type.to_string()).collect())
            }
            PairVerdict::Same | PairVerdict::Different => None,
        }
    }

    #[test]
    fn only_what_is_not_equal_is_asked_about_and_values_arrive_as_values() {
        assert_eq!(asked(b"[1]", b"[1]"), None);
        assert_eq!(asked(b"[1]", b"cat").unwrap(), ["application/json", "text/plain"]);
        assert_eq!(asked(b"\xff", b"{").unwrap(), ["application/octet-stream", "text/plain"]);
        let failed = Output { status: Some((404, String::new())), ..Output::default() };
        let rule = SameRule::Model("compare".to_owned());
        assert!(matches!(judged(&rule, &[Output::default(), failed]), PairVerdict::Different));
    }
}
