//! A line for a shell that asks a model for something it can answer: printed when the server starts.

use jitney_engine::Model;
use jitney_engine::local::{BodyKind, LocalModel, Signature};
use jitney_engine::store::Api;
use serde_json::{Value, json};

use super::model_paths::served_path;
use super::tensor_schema::{elements, example, expression};

/// More elements are made by an expression instead of being printed.
const PRINTED_MAX: usize = 64;

/// A grey JPEG, in base 64.
const PIXEL: &str = "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAP//////////////////////////////////////////////////////////////////////////////////////wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AP//Z";

/// A line that works when it is pasted into a shell. `options` are curl's, for a socket or a token; they
/// end with a space if there are any.
pub fn shell_example(model: &Model, options: &str, base: &str) -> String {
    let name = shell_safe(model.name());
    if let Some(api) = model.api() {
        return match definition(api, &name) {
            Some((path, body)) => {
                format!(
                    "curl {options}-H 'Content-Type: application/json' -d '{body}' {base}{path}"
                )
            }
            None => format!("curl {options}{base}/openapi.json"),
        };
    }
    let signature = model.signature().filter(|_| !model.tag().python);
    local_example(&name, signature, model.body_kind(), options, base)
}

/// The same for a model without Python that nothing has loaded, as its file declares it.
pub fn file_example(model: &dyn LocalModel, base: &str) -> String {
    let name = shell_safe(model.name());
    local_example(&name, Some(model.signature()), model.body_kind(), "", base)
}

fn local_example(
    name: &str,
    signature: Option<&Signature>,
    kind: BodyKind,
    options: &str,
    base: &str,
) -> String {
    let url = format!("{base}/predictions/{name}");
    match (signature, kind) {
        (Some(signature), BodyKind::Tensors) if elements(signature) <= PRINTED_MAX => {
            let body = example(signature).to_string().replace('\'', "'\\''");
            format!("curl {options}-H 'Content-Type: application/json' -d '{body}' {url}")
        }
        (Some(signature), BodyKind::Tensors) => {
            let body = expression(signature).replace('\'', "'\\''");
            format!(
                "python3 -c 'import json; print(json.dumps({body}))' | \
                 curl {options}-H 'Content-Type: application/json' -T - {url}"
            )
        }
        (Some(_), BodyKind::Image) => {
            format!(
                "echo {PIXEL} | base64 -d | curl {options}-H 'Content-Type: image/jpeg' -T - {url}"
            )
        }
        (Some(_), BodyKind::Text | BodyKind::File) | (None, _) => {
            format!("echo hello | curl {options}-T - {url}")
        }
    }
}

/// A name that stands in a URL and in a shell without quotes.
fn shell_safe(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC)
        .to_string()
        .replace("%2D", "-")
        .replace("%2E", ".")
        .replace("%5F", "_")
}

/// A path of a definition under the name it is served as, and a body that its type hints allow.
fn definition(api: &Api, name: &str) -> Option<(String, String)> {
    let root = json!({ "components": { "schemas": api.schemas } });
    api.paths.iter().find_map(|(path, item)| {
        let content = &item["post"]["requestBody"]["content"]["application/json"];
        let given = content.get("example").cloned();
        let body =
            given.or_else(|| content.get("schema").map(|schema| value_of(schema, &root, 0)))?;
        Some((served_path(api, path, name), body.to_string().replace('\'', "")))
    })
}

/// Schemas inside schemas; a class may hold itself.
const DEPTH_MAX: usize = 8;

/// A value that the schema admits; lists have an element.
fn value_of(schema: &Value, root: &Value, depth: usize) -> Value {
    if depth > DEPTH_MAX {
        return Value::Null;
    }
    let inner = |schema: &Value| value_of(schema, root, depth + 1);
    if let Some(default) = schema.get("default").or_else(|| schema["enum"].get(0)) {
        return default.clone();
    }
    if let Some(place) = schema["$ref"].as_str() {
        return root.pointer(place.trim_start_matches('#')).map_or(Value::Null, inner);
    }
    if let Some(first) = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema[*key].get(0)) {
        return inner(first);
    }
    match schema["type"].as_str() {
        Some("integer") => json!(1),
        Some("number") => json!(1.5),
        Some("string") => json!("text"),
        Some("boolean") => json!(true),
        Some("array") => match schema["items"].as_object() {
            Some(items) if !items.is_empty() => json!([inner(&schema["items"])]),
            // An array of any shape: one row of three.
            Some(_) | None => json!([[1, 2, 3]]),
        },
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            Value::Object(fields.map(|(name, field)| (name.clone(), inner(field))).collect())
        }
        Some(_) | None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_paste_follows_the_description() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "integer"}, "b": {"type": "string", "default": "x"}, "c": {},
            "d": {"type": "array", "items": {}}, "e": {"type": "array", "items": {"type": "number"}},
        }});
        let content = |content: Value| {
            let body = json!({"post": {"requestBody": {"content": content}}});
            Api { paths: [("/m".to_owned(), body)].into_iter().collect(), ..Api::default() }
        };
        let told = definition(&content(json!({"application/json": {"schema": schema}})), "n");
        let body = r#"{"a":1,"b":"x","c":null,"d":[[1,2,3]],"e":[1.5]}"#;
        assert_eq!(told, Some(("/n".to_owned(), body.to_owned())));
        let given = json!({"application/json": {"schema": {}, "example": {"n": "it's"}}});
        let told = definition(&content(given), "m");
        assert_eq!(told, Some(("/m".to_owned(), r#"{"n":"its"}"#.to_owned())));
        assert_eq!(definition(&content(json!({"text/plain": {}})), "m"), None);
    }

    #[test]
    fn classes_that_refer_to_others_have_values() {
        let inner = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
        let root = json!({"components": {"schemas": {"P": inner}}});
        let schema =
            json!({"type": "object", "properties": {"p": {"$ref": "#/components/schemas/P"}}});
        assert_eq!(value_of(&schema, &root, 0), json!({"p": {"x": 1}}));
        let endless = json!({"$ref": "#"});
        assert_eq!(value_of(&endless, &endless, 0), Value::Null);
    }

    #[test]
    fn a_name_needs_no_quotes() {
        assert_eq!(shell_safe("a-b_c.1"), "a-b_c.1");
        assert_eq!(shell_safe("a b'$(x)"), "a%20b%27%24%28x%29");
    }
}
