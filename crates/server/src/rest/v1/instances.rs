//! The instances of a request, taken out of its JSON without being read: each stays the text that came.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jitney_engine::call::Parameter;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Map;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The key of a value that stands for the bytes it encodes.
const BASE64: &str = "b64";
/// The keys by which TorchServe's handlers know their one value.
const NAMES: [&str; 2] = ["data", "body"];

/// What an instance is to a model that gets each by itself. For all of them `{"b64": "..."}` is the bytes
/// that it encodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstanceRule {
    /// The JSON body of a request to a definition.
    Json,
    /// The same for an archive, or its value `data` or `body` where an object has nothing else, as
    /// KServe's examples for TorchServe have it.
    Named,
    /// A text or file that the model prepares by itself.
    Plain,
}

/// What a client sent to be predicted.
pub(super) struct Instances<'a> {
    body: &'a Bytes,
    list: &'a RawValue,
    all: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    instances: Option<&'a RawValue>,
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

impl<'a> Instances<'a> {
    /// Reads `{"instances": [...]}`; other keys are ignored.
    ///
    /// # Errors
    /// What was expected and what came, without its model.
    pub(super) fn read(body: &'a Bytes) -> Result<Self, String> {
        let expected = "expected a JSON object with the list \"instances\"";
        // A list would be read as an object whose first field it names.
        match body.trim_ascii_start().first() {
            None => return Err(format!("{expected}, got nothing")),
            Some(b'[') => return Err(format!("{expected}, got a list")),
            Some(_) => {}
        }
        let document: Document<'a> = serde_json::from_slice(body)
            .map_err(|error| format!("{expected}, got what cannot be read ({error})"))?;
        let Some(list) = document.instances else {
            let keys: Map<String, serde_json::Value> =
                serde_json::from_slice(body).unwrap_or_default();
            let keys: Vec<_> = keys.keys().map(|key| format!("{key:?}")).collect();
            return Err(match keys.as_slice() {
                [] => format!("{expected}, got an object without any"),
                keys => format!("{expected}, got {}", keys.join(", ")),
            });
        };
        match serde_json::from_str(list.get()) {
            Ok(all) => Ok(Self { body, list, all }),
            Err(_) => Err(format!("\"instances\" must be a list, not {}", kind(list))),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether they are files, by the first of them.
    pub(super) fn are_files(&self) -> bool {
        self.all.first().is_some_and(|first| sole(first).is_some_and(|(key, _)| key == BASE64))
    }

    /// Whether they are texts, by the first of them.
    pub(super) fn are_texts(&self) -> bool {
        self.all.first().is_some_and(|first| first.get().starts_with('"'))
    }

    /// Each as the body of a request of its own.
    pub(super) fn each(&self, rule: InstanceRule) -> Result<Vec<Parameter>, String> {
        let named = rule == InstanceRule::Named;
        let all = self.all.iter().enumerate();
        let value = |(at, instance): (usize, &&'a RawValue)| {
            let value = match sole(instance).filter(|(key, _)| named && NAMES.contains(&&**key)) {
                Some((key, value)) => self.value(key, value, rule),
                None => self.value("body".to_owned(), instance, rule),
            };
            value.map_err(|error| format!("instance {at}: {error}"))
        };
        all.map(value).collect()
    }

    fn value(
        &self,
        name: String,
        value: &'a RawValue,
        rule: InstanceRule,
    ) -> Result<Parameter, String> {
        let text = || (rule == InstanceRule::Plain).then(|| text_of(value)).flatten();
        let (content_type, value) = match sole(value).filter(|(key, _)| key == BASE64) {
            Some((_, encoded)) => ("application/octet-stream", decoded(encoded)?),
            None => match text() {
                Some(text) => ("text/plain", text.into()),
                None => ("application/json", self.body.slice_ref(value.get().as_bytes())),
            },
        };
        Ok(Parameter { name: name.into(), content_type: content_type.into(), value: value.into() })
    }

    /// All of them as one body: the list itself for a model with one input, or an object with a list for
    /// each input, for instances that are objects with a value for each.
    pub(super) fn rows(&self, names: &[String]) -> Result<Bytes, String> {
        let known = |fields: &Fields<'_>| fields.keys().all(|key| names.contains(key));
        let first = self.all.first().and_then(|first| fields(first));
        let by_name = first.as_ref().is_some_and(known);
        if names.len() == 1 && !by_name {
            return Ok(self.body.slice_ref(self.list.get().as_bytes()));
        }
        let expected = || {
            let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
            format!("expected an object with {}", names.join(" and "))
        };
        let first = first.filter(|_| by_name);
        let columns: Vec<String> = match first {
            Some(first) if !first.is_empty() => first.into_keys().collect(),
            Some(_) | None => {
                let given = self.all.first().map_or("nothing".to_owned(), |one| shown(one));
                return Err(format!("instance 0: {}, got {given}", expected()));
            }
        };
        let mut rows = Vec::with_capacity(self.all.len());
        for (at, instance) in self.all.iter().enumerate() {
            let alike = |fields: &Fields<'_>| fields.keys().eq(columns.iter());
            let given = fields(instance).filter(alike);
            rows.push(given.ok_or_else(|| {
                format!("instance {at}: {}, got {}", expected(), shown(instance))
            })?);
        }
        let column = |name: &String| -> (String, Vec<&RawValue>) {
            (name.clone(), rows.iter().filter_map(|row| row.get(name).copied()).collect())
        };
        let columns: BTreeMap<_, _> = columns.iter().map(column).collect();
        serde_json::to_vec(&columns).map(Bytes::from).map_err(|error| error.to_string())
    }
}

/// The fields of an object.
fn fields<'a>(value: &'a RawValue) -> Option<Fields<'a>> {
    serde_json::from_str(value.get()).ok()
}

/// The only field of an object that has one.
fn sole(value: &RawValue) -> Option<(String, &RawValue)> {
    if !value.get().starts_with('{') {
        return None;
    }
    let mut fields = fields(value)?;
    fields.pop_first().filter(|_| fields.is_empty())
}

fn text_of(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

fn decoded(value: &RawValue) -> Result<Bytes, String> {
    let text = text_of(value).ok_or_else(|| format!("{BASE64:?} must be a text"))?;
    let bytes = STANDARD.decode(text.as_bytes());
    bytes.map(Bytes::from).map_err(|error| format!("{BASE64:?} is not base64: {error}"))
}

/// A value as an error names it: an object by its keys.
fn shown(value: &RawValue) -> String {
    let keys: Option<BTreeMap<String, IgnoredAny>> = serde_json::from_str(value.get()).ok();
    match keys {
        Some(keys) if keys.is_empty() => "an empty object".to_owned(),
        Some(keys) => {
            let keys: Vec<_> = keys.keys().map(|key| format!("{key:?}")).collect();
            format!("one with {}", keys.join(" and "))
        }
        None => kind(value).to_owned(),
    }
}

fn kind(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        Some(_) | None => "a number",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(body: &str, rule: InstanceRule) -> Result<Vec<String>, String> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let shown = |parameter: &Parameter| {
            let value = String::from_utf8_lossy(&parameter.value).into_owned();
            format!("{}|{}|{value}", parameter.name, parameter.content_type)
        };
        Ok(Instances::read(&body)?.each(rule)?.iter().map(shown).collect())
    }

    fn rows(body: &str, names: &[&str]) -> Result<String, String> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let rows = Instances::read(&body)?.rows(&names)?;
        Ok(String::from_utf8_lossy(&rows).into_owned())
    }

    #[test]
    fn an_instance_is_the_body_of_a_request() {
        let json = "body|application/json|";
        let found =
            each(r#"{"id": 1, "instances": [ [1, 2], "a", {"x": 1} ]}"#, InstanceRule::Named);
        assert_eq!(
            found.unwrap(),
            [format!("{json}[1, 2]"), format!("{json}\"a\""), format!("{json}{{\"x\": 1}}")]
        );
        let files = r#"{"instances": [{"b64": "aGk="}, {"data": {"b64": "aGk="}}, {"data": [1]}]}"#;
        let bytes = "application/octet-stream|hi";
        let named = [
            format!("body|{bytes}"),
            format!("data|{bytes}"),
            "data|application/json|[1]".to_owned(),
        ];
        assert_eq!(each(files, InstanceRule::Named).unwrap(), named);
        assert_eq!(
            each(files, InstanceRule::Json).unwrap()[1],
            format!("{json}{{\"data\": {{\"b64\": \"aGk=\"}}}}")
        );
        assert_eq!(
            each(r#"{"instances": []}"#, InstanceRule::Named).unwrap(),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_text_is_itself_to_a_model_that_prepares_it() {
        let found = each(r#"{"instances": ["a\nb", {"b64": "aGk="}]}"#, InstanceRule::Plain);
        assert_eq!(found.unwrap(), ["body|text/plain|a\nb", "body|application/octet-stream|hi"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = [
            ("", "got nothing"),
            ("[1]", "got a list"),
            ("{", "got what cannot be read (EOF while parsing"),
            ("{}", "got an object without any"),
            (r#"{"inputs": [], "x": 1}"#, "got \"inputs\", \"x\""),
            (r#"{"instances": {"a": 1}}"#, "must be a list, not an object"),
            (r#"{"instances": [1, {"b64": "?"}]}"#, "instance 1: \"b64\" is not base64"),
        ];
        for (body, expected) in wrong {
            let error = each(body, InstanceRule::Named).unwrap_err();
            assert!(error.contains(expected), "{body}: {error}");
        }
    }

    #[test]
    fn rows_are_one_list_or_a_list_for_each_input() {
        let one = r#"{"instances": [[1, 2], [3, 4]]}"#;
        assert_eq!(rows(one, &["x"]).unwrap(), "[[1, 2], [3, 4]]");
        let named = r#"{"instances": [{"x": 1}, {"x": 2}]}"#;
        assert_eq!(rows(named, &["x"]).unwrap(), r#"{"x":[1,2]}"#);
        let two = r#"{"instances": [{"a": 1, "b": "x"}, {"b": "y", "a": 2}]}"#;
        assert_eq!(rows(two, &["a", "b", "optional"]).unwrap(), r#"{"a":[1,2],"b":["x","y"]}"#);
        let error = rows(one, &["a", "b"]).unwrap_err();
        assert_eq!(error, "instance 0: expected an object with \"a\" and \"b\", got a list");
        let error = rows(r#"{"instances": [{"a": 1}, {"b": 2}]}"#, &["a", "b"]).unwrap_err();
        assert_eq!(
            error,
            "instance 1: expected an object with \"a\" and \"b\", got one with \"b\""
        );
        assert!(rows(r#"{"instances": [{"a": 1, "z": 2}]}"#, &["a", "b"]).is_err());
    }
}
