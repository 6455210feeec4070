//! The operations of one model: its predictions with their real inputs, and what the Open Inference Protocol
//! tells of it. Every operation names all statuses that it may answer with.

use jitney_engine::Model;
use jitney_engine::local::{BodyKind, Signature};
use jitney_engine::store::Api;
use serde_json::{Map, Value, json};

use super::operations::Paths;
use super::tensor_schema::{self, example, plain_schema, protocol_schema};

/// The classes of a document, by name.
pub(super) type Schemas = Map<String, Value>;

/// Where a document has its classes.
const CLASSES: &str = "#/components/schemas/";
/// The class of the body of a failure.
pub(super) const ERROR: &str = "Error";

/// What can go wrong with any request.
const FAILURES: [(&str, &str); 12] = [
    ("400", "The request does not fit the model; errors names the fields."),
    ("401", "The key is missing, unknown, revoked or expired."),
    ("403", "The key does not allow it, or a plugin denied it."),
    ("404", "There is no such model, version or endpoint."),
    ("405", "The path does not take this method; Allow says which it takes."),
    ("408", "The deadline passed, or the body came too slowly."),
    ("413", "The body is too large."),
    ("415", "The body is in a coding that is not known."),
    ("429", "The client's own share is used up."),
    ("500", "The model or its worker failed."),
    ("503", "Rejected; Retry-After says when to try again."),
    ("507", "The model ran out of memory."),
];

/// Every path of a model. The classes that it names are added to those of the models before it.
pub(super) fn paths(model: &Model, schemas: &mut Schemas) -> Paths {
    let name = model.name();
    let mut paths = match (model.api(), model.signature().filter(|_| !model.tag().python)) {
        (Some(api), _) => definition(api, name, schemas),
        (None, Some(signature)) => local(model, signature),
        (None, None) => archive(name),
    };
    paths.extend(protocol(model));
    operations(&mut paths).for_each(complete);
    paths
}

fn operations(paths: &mut Paths) -> impl Iterator<Item = &mut Value> {
    paths.values_mut().filter_map(Value::as_object_mut).flat_map(|item| item.values_mut())
}

/// The paths of a definition with the name under which it is served.
fn definition(api: &Api, name: &str, schemas: &mut Schemas) -> Paths {
    let mut paths: Paths =
        api.paths.iter().map(|(path, item)| (served_path(api, path, name), item.clone())).collect();
    let mut own = api.schemas.clone();
    if own.iter().any(|(class, schema)| schemas.get(class).is_some_and(|other| other != schema)) {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let prefix = format!("{}_", name.chars().map(plain).collect::<String>());
        own = own.into_iter().map(|(class, schema)| (format!("{prefix}{class}"), schema)).collect();
        own.values_mut().chain(paths.values_mut()).for_each(|value| qualify(value, &prefix));
    }
    schemas.extend(own);
    for operation in operations(&mut paths) {
        let defined = operation["tags"][0].as_str().unwrap_or_default();
        let id = operation["operationId"].as_str().unwrap_or_default();
        let id = format!("{name}{}", id.strip_prefix(defined).unwrap_or(id));
        operation["operationId"] = json!(id);
        operation["tags"] = json!([name]);
    }
    paths
}

/// A path of a definition under the name it is served as; its routes are its own.
pub(super) fn served_path(api: &Api, path: &str, name: &str) -> String {
    match path.trim_start_matches('/').split_once('/') {
        _ if api.http.routes.iter().any(|route| route.path == path) => path.to_owned(),
        Some((_, endpoint)) => format!("/{name}/{endpoint}"),
        None => format!("/{name}"),
    }
}

/// Puts the prefix before the names of all classes that a description refers to.
fn qualify(value: &mut Value, prefix: &str) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field.as_str().and_then(|text| text.strip_prefix(CLASSES)) {
                    Some(class) if key == "$ref" => {
                        *field = json!(format!("{CLASSES}{prefix}{class}"));
                    }
                    Some(_) | None => qualify(field, prefix),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| qualify(value, prefix)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A model without Python.
fn local(model: &Model, signature: &Signature) -> Paths {
    let (name, kind) = (model.name(), model.body_kind());
    let content = match kind {
        BodyKind::Tensors => json!({ "application/json": {
            "schema": plain_schema(signature),
            "example": example(signature),
        } }),
        BodyKind::Image => json!({ "image/*": { "schema": binary() } }),
        BodyKind::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
        BodyKind::File => json!({ "*/*": { "schema": binary() } }),
    };
    let inputs = signature.inputs.iter().map(|spec| format!("\n{}: {spec}", spec.name));
    let takes = match kind {
        BodyKind::Tensors => {
            format!("It takes lists of numbers by input:{}", inputs.collect::<String>())
        }
        BodyKind::Image => "It takes an image, such as a JPEG.".to_owned(),
        BodyKind::Text => "It takes a text.".to_owned(),
        BodyKind::File => "It takes a file.".to_owned(),
    };
    let operation = json!({
        "operationId": name,
        "tags": [name],
        "summary": "Runs the model",
        "description": format!("Runs the model.\n{takes}"),
        "requestBody": { "required": true, "content": content },
        "responses": { "200": answer() },
    });
    Paths::from_iter([(format!("/{name}"), json!({ "post": operation }))])
}

/// An archive says nothing of what it takes.
fn archive(name: &str) -> Paths {
    let operation = json!({
        "operationId": name,
        "tags": [name],
        "summary": "Runs the model",
        "description": "Runs the model. Its handler says what it takes.",
        "requestBody": { "content": { "*/*": { "schema": binary() } } },
        "responses": { "200": answer() },
    });
    Paths::from_iter([(format!("/predictions/{name}"), json!({ "post": operation }))])
}

/// Under what the operations of the Open Inference Protocol stand, apart from the model's own.
pub(super) fn protocol_tag(name: &str) -> String {
    format!("{name} (Open Inference Protocol)")
}

/// What the Open Inference Protocol has of every model.
fn protocol(model: &Model) -> Paths {
    let name = model.name();
    let tag = protocol_tag(name);
    let read = |id: &str, summary: &str, schema: Value| {
        json!({ "get": {
            "operationId": format!("{name}_{id}"),
            "tags": [tag],
            "summary": summary,
            "responses": { "200": {
                "description": summary, "content": { "application/json": { "schema": schema } },
            } },
        } })
    };
    let object = || json!({ "type": "object" });
    let base = format!("/v2/models/{name}");
    let mut paths = Paths::from_iter([
        (
            base.clone(),
            read("metadata", "What the model takes and gives", tensor_schema::metadata()),
        ),
        (format!("{base}/ready"), read("ready", "Whether the model can serve", object())),
        (format!("{base}/config"), read("config", "The model's configuration", object())),
        (format!("{base}/stats"), read("stats", "What the model's requests came to", object())),
    ]);
    if let Some(signature) = model.signature().filter(|_| model.takes_tensors()) {
        let (schema, example) = protocol_schema(signature);
        let infer = json!({ "post": {
            "operationId": format!("{name}_infer"),
            "tags": [tag],
            "summary": "Runs the model on tensors",
            "description": "The Open Inference Protocol, here with one item. With n items the first number of \
                            each shape is n, and the data have as many rows.",
            "requestBody": {
                "required": true,
                "content": { "application/json": { "schema": schema, "example": example } },
            },
            "responses": { "200": {
                "description": "The outputs.",
                "content": { "application/json": { "schema": tensor_schema::answer() } },
            } },
        } });
        paths.insert(format!("{base}/infer"), infer);
    }
    paths
}

/// Adds the statuses that an operation does not name, each with the body that it has.
pub(super) fn complete(operation: &mut Value) {
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    let error =
        || json!({ "application/json": { "schema": { "$ref": format!("{CLASSES}{ERROR}") } } });
    for (status, description) in FAILURES {
        let response =
            responses.entry(status).or_insert_with(|| json!({ "description": description }));
        if response.get("content").is_none() {
            response["content"] = error();
        }
    }
}

/// The body of every failure.
pub(super) fn error_schema() -> Value {
    let text = || json!({ "type": "string" });
    json!({
        "type": "object",
        "required": ["code", "type", "message"],
        "properties": {
            "code": { "type": "integer", "description": "The status." },
            "type": text(),
            "message": { "type": "string", "description": "One sentence for people." },
            "reason": text(),
            "error": { "type": "string", "description": "The message, where the Open Inference Protocol has it." },
            "errors": {
                "type": "array",
                "description": "The fields that do not fit.",
                "items": {
                    "type": "object",
                    "required": ["field", "message"],
                    "properties": { "field": text(), "message": text() },
                },
            },
            "requestId": { "type": "string", "description": "By what the log knows the request." },
        },
    })
}

fn answer() -> Value {
    json!({ "description": "The model's answer.", "content": { "*/*": { "schema": {} } } })
}

fn binary() -> Value {
    json!({ "type": "string", "format": "binary" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(schema: Value) -> Api {
        let item = json!({ "post": {
            "operationId": "a_b", "tags": ["a"], "requestBody": { "$ref": "#/components/schemas/Box" },
        } });
        Api {
            paths: [("/a/b".to_owned(), item)].into_iter().collect(),
            schemas: [("Box".to_owned(), schema)].into_iter().collect(),
            ..Api::default()
        }
    }

    #[test]
    fn paths_and_ids_follow_the_name_that_a_model_is_served_under() {
        let mut schemas = Schemas::new();
        let paths = definition(&api(json!({})), "z", &mut schemas);
        let post = &paths["/z/b"]["post"];
        assert_eq!((&post["operationId"], &post["tags"]), (&json!("z_b"), &json!(["z"])));
        assert_eq!(served_path(&Api::default(), "/a", "z"), "/z");
    }

    #[test]
    fn classes_of_one_name_that_differ_are_told_apart_by_their_model() {
        let mut schemas = Schemas::new();
        definition(&api(json!({ "type": "object" })), "x", &mut schemas);
        let same = definition(&api(json!({ "type": "object" })), "y", &mut schemas);
        let other = definition(&api(json!({ "type": "string" })), "n-1", &mut schemas);
        let class = |paths: &Paths, path: &str| paths[path]["post"]["requestBody"]["$ref"].clone();
        assert_eq!(class(&same, "/y/b"), "#/components/schemas/Box");
        assert_eq!(class(&other, "/n-1/b"), "#/components/schemas/n_1_Box");
        assert_eq!(schemas.keys().collect::<Vec<_>>(), ["Box", "n_1_Box"]);
    }

    #[test]
    fn every_status_has_a_body() {
        let mut operation =
            json!({ "responses": { "200": answer(), "400": { "description": "Bad" } } });
        complete(&mut operation);
        let responses = operation["responses"].as_object().unwrap();
        assert_eq!(responses["400"]["description"], "Bad");
        assert!(responses.values().all(|response| response["content"].is_object()));
        assert_eq!(responses.len(), FAILURES.len() + 1);
    }
}
