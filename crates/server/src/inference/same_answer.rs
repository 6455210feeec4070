//! Whether two versions gave the same answer: byte by byte, with numbers within a tolerance, or with the same best class.
//! Pure. Answers that a rule cannot read are the same where they are equal, and so are those that a model would judge.

use jitney_engine::call::Output;
use jitney_engine::tensors::{Datatype, NamedTensor};
use jitney_engine::traffic_split::SameRule;
use serde_json::{Value, json};

use crate::open_inference::elements::{BytesForm, JsonList, doubles};

pub(super) fn is_same(rule: &SameRule, old: &Output, new: &Output) -> bool {
    if status(old) != status(new) {
        return false;
    }
    let both = (old.tensors.as_deref(), new.tensors.as_deref());
    match (rule, both) {
        (SameRule::Equal | SameRule::Model(_), tensors) => {
            old.body == new.body && tensors.0 == tensors.1
        }
        (_, (Some(old), Some(new))) => {
            let pairs = || old.iter().zip(new);
            old.len() == new.len() && pairs().all(|(old, new)| is_same_tensor(rule, old, new))
        }
        (_, (None, None)) => is_same_body(rule, &old.body, &new.body),
        (_, (Some(_), None) | (None, Some(_))) => false,
    }
}

/// The status that an answer has.
pub(super) fn status(output: &Output) -> u16 {
    output.status.as_ref().map_or(200, |(code, _)| *code)
}

fn is_same_body(rule: &SameRule, old: &[u8], new: &[u8]) -> bool {
    if old == new {
        return true;
    }
    let read = |body| serde_json::from_slice::<Value>(body).ok();
    match (read(old), read(new)) {
        (Some(old), Some(new)) => is_same_value(rule, &old, &new),
        _ => false,
    }
}

/// JSON is read to a bounded depth, so this is bounded, too.
fn is_same_value(rule: &SameRule, old: &Value, new: &Value) -> bool {
    if *rule == SameRule::Top1
        && let (Some(old), Some(new)) = (best(old), best(new))
    {
        return old == new;
    }
    match (old, new) {
        (Value::Number(old), Value::Number(new)) => match (old.as_f64(), new.as_f64()) {
            (Some(old), Some(new)) => is_near(rule, old, new),
            _ => old == new,
        },
        (Value::Array(old), Value::Array(new)) => {
            let mut pairs = old.iter().zip(new);
            old.len() == new.len() && pairs.all(|(old, new)| is_same_value(rule, old, new))
        }
        (Value::Object(old), Value::Object(new)) => {
            let same = |(name, old): (&String, &Value)| {
                new.get(name).is_some_and(|new| is_same_value(rule, old, new))
            };
            old.len() == new.len() && old.iter().all(same)
        }
        _ => old == new,
    }
}

/// The name or position of the largest of these numbers: of a list or an object that has only numbers, and at least two.
fn best(scores: &Value) -> Option<String> {
    let scores: Vec<(String, f64)> = match scores {
        Value::Array(list) => {
            let score = |(at, score): (usize, &Value)| Some((at.to_string(), score.as_f64()?));
            list.iter().enumerate().map(score).collect::<Option<_>>()?
        }
        Value::Object(named) => {
            let score = |(name, score): (&String, &Value)| Some((name.clone(), score.as_f64()?));
            named.iter().map(score).collect::<Option<_>>()?
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    };
    let largest = scores.iter().map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max);
    let first = scores.iter().find(|(_, score)| *score == largest);
    first.filter(|_| scores.len() > 1).map(|(name, _)| name.clone())
}

fn is_same_tensor(rule: &SameRule, old: &NamedTensor, new: &NamedTensor) -> bool {
    let kind = |it: &NamedTensor| (it.name().to_owned(), it.shape().to_vec());
    if kind(old) != kind(new) {
        return false;
    }
    if [old, new].iter().any(|it| it.datatype() == Datatype::Bytes) {
        return old == new;
    }
    let (one, two) = (doubles(old), doubles(new));
    let width = old.shape().last().copied().unwrap_or(1);
    if *rule == SameRule::Top1 && width > 1 {
        let mut rows = one.chunks(width).zip(two.chunks(width));
        return rows.all(|(one, two)| largest(one) == largest(two));
    }
    one.iter().zip(&two).all(|(one, two)| is_near(rule, *one, *two))
}

fn largest(row: &[f64]) -> Option<usize> {
    let better = |a: &usize, b: &usize| row[*a].total_cmp(&row[*b]).then(b.cmp(a));
    (0..row.len()).max_by(better)
}

/// Numbers that no rule gives room are equal or not.
fn is_near(rule: &SameRule, old: f64, new: f64) -> bool {
    let tolerance = match rule {
        SameRule::Numbers(tolerance) => *tolerance,
        SameRule::Equal | SameRule::Top1 | SameRule::Model(_) => 0.0,
    };
    let room = tolerance * old.abs().max(new.abs()).max(1.0);
    old == new || (old - new).abs() <= room || (old.is_nan() && new.is_nan())
}

/// An answer as text, for whoever looks at it: what is not text is shown as far as it is.
pub(super) fn shown(output: &Output) -> String {
    let Some(tensors) = &output.tensors else {
        return String::from_utf8_lossy(&output.body).into_owned();
    };
    let one = |it: &NamedTensor| {
        let data = serde_json::to_value(JsonList(it, BytesForm::Base64)).unwrap_or_default();
        json!({"name": it.name(), "datatype": it.datatype().as_str(), "shape": it.shape(), "data": data})
    };
    Value::Array(tensors.iter().map(one).collect()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &str) -> Output {
        Output { body: body.to_owned().into(), ..Output::default() }
    }

    fn scores(shape: &[usize], values: &[f32]) -> Output {
        let data: Vec<u8> = values.iter().flat_map(|it| it.to_le_bytes()).collect();
        let tensor = NamedTensor::new("y", Datatype::Fp32, shape, data.into()).unwrap();
        Output { tensors: Some([tensor].into()), ..Output::default() }
    }

    #[test]
    fn answers_are_the_same_by_their_rule() {
        let (equal, top1, near) = (&SameRule::Equal, &SameRule::Top1, &SameRule::Numbers(0.01));
        for (rule, old, new, same) in [
            (equal, "cat", "cat", true),
            (equal, "[1.0]", "[1.00]", false),
            (near, "[1.0, \"a\"]", "[1.005, \"a\"]", true),
            (near, "[1.0]", "[1.02]", false),
            (near, "[1000]", "[1009]", true),
            (near, "{\"a\": 0.0, \"b\": [null]}", "{\"b\": [null], \"a\": 0.009}", true),
            (near, "[1, 2]", "[1]", false),
            (near, "{\"a\": 1}", "{\"b\": 1}", false),
            (near, "not JSON", "not json", false),
            (top1, "[0.1, 0.7, 0.2]", "[0.3, 0.4, 0.3]", true),
            (top1, "[0.1, 0.7]", "[0.6, 0.4]", false),
            (top1, "{\"cat\": 0.9, \"dog\": 0.1}", "{\"dog\": 0.2, \"cat\": 0.8}", true),
            (top1, "[[1, 2], [2, 1]]", "[[1, 3], [1, 2]]", false),
            (top1, "[5]", "[6]", false),
            (top1, "\"cat\"", "\"dog\"", false),
        ] {
            assert_eq!(is_same(rule, &text(old), &text(new)), same, "{rule:?}: {old} {new}");
        }
    }

    #[test]
    fn tensors_and_statuses_are_compared_as_well() {
        let (old, new) =
            (scores(&[2, 2], &[1.0, 2.0, 4.0, 3.0]), scores(&[2, 2], &[1.0, 9.0, 4.0, 3.0]));
        assert!(is_same(&SameRule::Top1, &old, &new) && !is_same(&SameRule::Equal, &old, &new));
        assert!(!is_same(&SameRule::Numbers(0.1), &old, &new));
        assert!(is_same(&SameRule::Numbers(0.1), &old, &scores(&[2, 2], &[1.05, 2.0, 4.0, 3.0])));
        let other_shape = scores(&[4], &[1.0, 2.0, 4.0, 3.0]);
        assert!(!is_same(&SameRule::Numbers(0.1), &old, &other_shape));
        assert!(!is_same(&SameRule::Top1, &old, &text("[1, 2]")));
        let failed = Output { status: Some((404, String::new())), ..text("cat") };
        assert!(!is_same(&SameRule::Equal, &text("cat"), &failed));
        assert!(shown(&old).contains("\"shape\":[2,2]"));
    }
}
