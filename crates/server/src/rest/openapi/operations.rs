//! The operations of all APIs: `api.json` lists them in TorchServe's order, with shared schemas and
//! parameters by name; here they become OpenAPI.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

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
    paths: HashMap<String, Vec<PathRow>>,
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

/// What an operation takes and answers, without its path.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OperationRow {
    description: String,
    parameters: Vec<ParameterRef>,
    takes_body: bool,
    /// Status, description, content type, schema.
    answers: Vec<[String; 4]>,
    /// Status and description of things going wrong.
    fails: Vec<[String; 2]>,
}

/// Method, path, id, operation, and what this path takes besides.
#[derive(Deserialize)]
struct PathRow(String, String, String, String, #[serde(default)] Vec<ParameterRow>);

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

/// The paths of one API of the table; `model` is the name in the paths of a single model.
pub(super) fn paths(api: &str, model: &str) -> Paths {
    let mut paths = Paths::new();
    for PathRow(method, path, id, operation, more) in API.paths.get(api).into_iter().flatten() {
        let Some(operation) = API.operations.get(operation) else { continue };
        let path = path.replace("{model}", model);
        let operation = operation.on_path(id, &path, more);
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[method.as_str()] = json!(operation);
    }
    paths
}

impl OperationRow {
    /// The operation with those of its path's parameters that the path names.
    fn on_path<'a>(&'a self, id: &'a str, path: &str, more: &[ParameterRow]) -> ApiOperation<'a> {
        let rows = self.parameters.iter().flat_map(|parameter| match parameter {
            ParameterRef::One(row) => std::slice::from_ref(row),
            ParameterRef::Shared(name) => {
                API.parameters.get(name).map(Vec::as_slice).unwrap_or_default()
            }
        });
        let named =
            |row: &&ParameterRow| row[0] != "path" || path.contains(&format!("{{{}}}", row[1]));
        let fails = self.fails.iter();
        let fails = fails.map(|[status, why]| [status, why, "application/json", "error"]);
        let answers = self.answers.iter().map(|row| row.each_ref().map(String::as_str));
        ApiOperation {
            description: &self.description,
            operation_id: id,
            parameters: rows.chain(more).filter(named).map(parameter).collect(),
            request_body: self.takes_body.then(any_body),
            responses: answers.chain(fails).map(answer).collect(),
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
        description: own.unwrap_or(&usual),
        request_body: takes_body.then(any_body),
        ..operation.on_path(&id, &endpoint.path, &[])
    });
    json!(operation)
}

/// A path as part of an operation's id.
fn identifier(path: &str) -> String {
    let letters = path.trim_matches('/').chars();
    letters.map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}
