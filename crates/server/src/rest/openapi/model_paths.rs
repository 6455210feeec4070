//! The operations of one model: its predictions with their real inputs, and what the Open Inference Protocol
//! tells of it. Every operation names all statuses that it may answer with.

use jitney_engine::Model;
use jitney_engine::local::{BodyKind, Signature};
use serde_json::{Value, json};

use super::operations::Paths;
use super::tensor_schema::{self, example, plain_schema, protocol_schema};

/// What can go wrong with any request.
const FAILURES: [(&str, &str); 11] = [
    ("400", "The request does not fit the model."),
    ("403", "A plugin denied it."),
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

/// Every path of a model.
pub(super) fn paths(model: &Model) -> Paths {
    let name = model.name();
    let mut paths = match (model.api(), model.signature().filter(|_| !model.tag().python)) {
        (Some(api), _) => {
            let mut paths = renamed(&api.paths, name);
            paths.values_mut().for_each(add_methods);
            paths
        }
        (None, Some(signature)) => local(model, signature),
        (None, None) => archive(name),
    };
    paths.extend(protocol(model));
    for operation in
        paths.values_mut().filter_map(Value::as_object_mut).flat_map(|it| it.values_mut())
    {
        complete(operation);
    }
    paths
}

/// The paths of a definition with the name under which it is served.
fn renamed(paths: &Paths, name: &str) -> Paths {
    let under = |path: &str| match path.trim_start_matches('/').split_once('/') {
        Some((_, endpoint)) => format!("/{name}/{endpoint}"),
        None => format!("/{name}"),
    };
    paths.iter().map(|(path, item)| (under(path), item.clone())).collect()
}

/// A definition also takes `PUT`, and `GET` with its parameters in the query where they are plain values.
fn add_methods(item: &mut Value) {
    let post = item["post"].clone();
    if !post.is_object() {
        return;
    }
    let named = |method: &str| {
        let mut operation = post.clone();
        let id = post["operationId"].as_str().unwrap_or_default();
        operation["operationId"] = json!(format!("{id}_{method}"));
        operation
    };
    let body = &post["requestBody"];
    let schema = &body["content"]["application/json"]["schema"];
    let schema = schema["anyOf"].get(0).unwrap_or(schema);
    let is_plain = |schema: &Value| {
        matches!(schema["type"].as_str(), Some("integer" | "number" | "boolean" | "string"))
    };
    let required = schema["required"].as_array().filter(|_| body["required"] == json!(true));
    let parameter = |(name, schema): (&String, &Value)| {
        let needed = required.is_some_and(|all| all.iter().any(|one| one == name.as_str()));
        json!({ "in": "query", "name": name, "required": needed, "schema": schema })
    };
    if let Some(properties) =
        schema["properties"].as_object().filter(|it| it.values().all(is_plain))
    {
        let mut get = without_body(named("get"));
        get["parameters"] = properties.iter().map(parameter).collect();
        item["get"] = get;
    }
    item["put"] = named("put");
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
    let operation = |id: &str| {
        json!({
            "operationId": format!("{name}_{id}"),
            "tags": [name],
            "summary": "Runs the model",
            "description": format!("Runs the model.\n{takes}"),
            "requestBody": { "required": true, "content": content },
            "responses": { "200": answer() },
        })
    };
    Paths::from_iter([
        (format!("/{name}"), json!({ "post": operation("run"), "put": operation("put") })),
        (
            format!("/predictions/{name}"),
            json!({ "post": operation("predict"), "put": operation("predict_put") }),
        ),
    ])
}

/// An archive says nothing of what it takes.
fn archive(name: &str) -> Paths {
    let operation = |id: &str| {
        json!({
            "operationId": format!("{name}_{id}"),
            "tags": [name],
            "summary": "Runs the model",
            "description": "Runs the model. Its handler says what it takes.",
            "requestBody": { "content": { "*/*": { "schema": binary() } } },
            "responses": { "200": answer() },
        })
    };
    let item = json!({ "post": operation("predict"), "put": operation("put"), "get": without_body(operation("get")) });
    Paths::from_iter([(format!("/predictions/{name}"), item)])
}

fn without_body(mut operation: Value) -> Value {
    operation.as_object_mut().map(|it| it.remove("requestBody"));
    operation
}

/// What the Open Inference Protocol has of every model.
fn protocol(model: &Model) -> Paths {
    let name = model.name();
    let read = |id: &str, summary: &str, schema: Value| {
        json!({ "get": {
            "operationId": format!("{name}_{id}"),
            "tags": [name],
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
            "tags": [name],
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
    let error = || json!({ "application/json": { "schema": error_schema() } });
    for (status, description) in FAILURES {
        let response =
            responses.entry(status).or_insert_with(|| json!({ "description": description }));
        if response.get("content").is_none() {
            response["content"] = error();
        }
    }
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["code", "type", "message"],
        "properties": {
            "code": { "type": "integer" }, "type": { "type": "string" }, "message": { "type": "string" },
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

    #[test]
    fn paths_follow_the_name_that_a_model_is_served_under() {
        let paths = Paths::from_iter([("/a".to_owned(), json!(1)), ("/a/b".to_owned(), json!(2))]);
        let names: Vec<_> = renamed(&paths, "z").into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["/z", "/z/b"]);
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
