//! The endpoints as OpenAPI: their rows say where they are and what they do, `api.json` what they take and
//! answer, with shared schemas and parameters by name.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::endpoint::{Endpoint, EndpointApi};
use crate::plugins::PluginEndpoint;

/// Paths of an OpenAPI document.
pub(super) type Paths = Map<String, Value>;

static API: LazyLock<ApiTable> = LazyLock::new(|| {
    serde_json::from_str(include_str!("api.json")).unwrap_or_else(|error| {
        tracing::error!(%error, "the table of operations is not valid");
        ApiTable::default()
    })
});

/// What `api.json` holds.
#[derive(Default, Deserialize)]
struct ApiTable {
    schemas: Value,
    parameters: HashMap<String, Vec<ParameterRow>>,
    operations: HashMap<String, OperationRow>,
}

/// Where it is, its name, its type, its description.
type ParameterRow = [String; 4];

/// A parameter, or the name of several.
#[derive(Deserialize)]
#[serde(untagged)]
enum ParameterRef {
    One(ParameterRow),
    Shared(String),
}

/// What an endpoint takes and answers.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OperationRow {
    /// Another one, to which this one adds its parameters.
    like: Option<String>,
    parameters: Vec<ParameterRef>,
    takes_body: bool,
    /// Status, description, content type, schema.
    answers: Vec<[String; 4]>,
    /// Status and description of things going wrong.
    fails: Vec<[String; 2]>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiOperation<'a> {
    description: &'a str,
    operation_id: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parameters: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_body: Option<Value>,
    responses: Map<String, Value>,
}

/// The paths of the endpoints that one API's document lists.
pub(super) fn paths(rows: &[Endpoint], api: EndpointApi) -> Paths {
    let listed = rows.iter().filter(|row| row.document.is_some_and(|it| it.section == api));
    listed.fold(Paths::new(), |mut paths, row| {
        add(&mut paths, row, &documented(row));
        paths
    })
}

/// The path of an endpoint, with the names that TorchServe's documents give to its places.
fn documented(row: &Endpoint) -> String {
    let path = row.shown().replace("{model}", "{model_name}");
    path.replace("{version}", "{model_version}").replace("{workflow}", "{workflow_name}")
}

/// One model's predictions and management, as its own documents list them.
pub(super) fn model_paths(rows: &[Endpoint], ids: &[&str], model: &str) -> Paths {
    let mut paths = Paths::new();
    for id in ids {
        let row = rows.iter().find(|row| row.document.is_some_and(|it| it.id == *id));
        let Some(row) = row else { continue };
        // TorchServe writes the name into its own paths only, and one of them in the singular.
        let path = match *id {
            "predictions" => format!("/prediction/{model}"),
            _ if row.path.starts_with("/models/") => row.path.replace("{model}", model),
            _ => documented(row),
        };
        add(&mut paths, row, &path);
        if let Some(methods) = paths[&path].as_object_mut().filter(|_| *id == "predictions") {
            methods.retain(|method, _| method == "post");
            methods["post"]["operationId"] = json!(id);
        }
    }
    paths
}

fn add(paths: &mut Paths, row: &Endpoint, path: &str) {
    let Some(document) = row.document else { return };
    let unknown = OperationRow::default();
    let operation = API.operations.get(document.shape).unwrap_or(&unknown);
    let entry = paths.entry(path).or_insert_with(|| json!({}));
    let methods = row.methods.listed();
    for method in if document.each { methods } else { &methods[..1] } {
        let id = match document.each {
            true => format!("{}_{method}", document.id),
            false => document.id.to_owned(),
        };
        entry[*method] = json!(operation.on_path(row.about, &id, path));
    }
}

impl OperationRow {
    /// The operation with those of its path's parameters that the path names.
    fn on_path<'a>(&'a self, description: &'a str, id: &'a str, path: &str) -> ApiOperation<'a> {
        let like = self.like.as_ref().and_then(|name| API.operations.get(name));
        let all = like.unwrap_or(self);
        let own = like.map(|_| &self.parameters).into_iter().flatten();
        let rows = all.parameters.iter().chain(own).flat_map(|parameter| match parameter {
            ParameterRef::One(row) => std::slice::from_ref(row),
            ParameterRef::Shared(name) => {
                API.parameters.get(name).map(Vec::as_slice).unwrap_or_default()
            }
        });
        let named =
            |row: &&ParameterRow| row[0] != "path" || path.contains(&format!("{{{}}}", row[1]));
        let fails = all.fails.iter();
        let fails = fails.map(|[status, why]| [status, why, "application/json", "error"]);
        let usual = ["200", description, "application/json", "object"];
        let usual = all.answers.is_empty().then_some(usual).into_iter();
        let answers = all.answers.iter().map(|row| row.each_ref().map(String::as_str));
        ApiOperation {
            description,
            operation_id: id,
            parameters: rows.filter(named).map(parameter).collect(),
            request_body: all.takes_body.then(any_body),
            responses: usual.chain(answers).chain(fails).map(answer).collect(),
        }
    }
}

fn parameter([place, name, kind, description]: &ParameterRow) -> Value {
    json!({
        "in": place, "name": name, "description": description, "required": place == "path",
        "schema": { "type": kind },
    })
}

fn any_body() -> Value {
    json!({ "description": "Input.", "content": { "*/*": { "schema": API.schemas["any"] } } })
}

fn answer([status, description, content, schema]: [&str; 4]) -> (String, Value) {
    let content = json!({ content: { "schema": API.schemas[schema] } });
    (status.to_owned(), json!({ "description": description, "content": content }))
}

/// OpenAPI's methods; a plugin may take others, which the document has no place for.
const PLUGIN_METHODS: [&str; 8] =
    ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// One entry per path, one operation per method. ServerAddresses may coincide, and then paths may too.
pub(super) fn plugin_paths<'a>(endpoints: impl Iterator<Item = &'a PluginEndpoint>) -> Paths {
    let mut paths = Paths::new();
    for endpoint in endpoints {
        let entry = paths.entry(&endpoint.path).or_insert_with(|| json!({}));
        for method in endpoint.methods.iter().map(|method| method.as_str().to_lowercase()) {
            if PLUGIN_METHODS.contains(&method.as_str()) {
                entry[&method] = plugin_operation(endpoint, &method);
            }
        }
    }
    paths
}

fn plugin_operation(endpoint: &PluginEndpoint, method: &str) -> Value {
    let id = format!("{}_{}_{method}", endpoint.plugin(), identifier(&endpoint.path));
    let usual = format!("Answered by the plugin {}.", endpoint.plugin());
    let own = Some(endpoint.description.as_str()).filter(|own| !own.is_empty());
    let takes_body = ["post", "put", "patch"].contains(&method);
    let operation = API.operations.get("plugin").map(|operation| ApiOperation {
        request_body: takes_body.then(any_body),
        ..operation.on_path(own.unwrap_or(&usual), &id, &endpoint.path)
    });
    json!(operation)
}

/// A path as part of an operation's id.
fn identifier(path: &str) -> String {
    let letters = path.trim_matches('/').chars();
    letters.map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}
