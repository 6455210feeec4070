//! The model repository extension over REST. Bodies are small JSON documents, or empty.

use http::StatusCode;
use jitney_engine::IndexEntry;
use jitney_net::RequestBody;
use serde_json::{Map, Value, json};

use super::context::RequestContext;
use crate::errors::Problem;
use crate::repository;
use crate::respond::{self, HttpResult};

/// `POST /v2/repository/index`: every model with its state; with `{"ready": true}` those that are ready.
pub(super) async fn index(context: &RequestContext<'_>, body: RequestBody) -> HttpResult {
    let ready = match document(context, body).await?.get("ready") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(ready)) => *ready,
        Some(other) => {
            return Err(Problem::bad_request(format!("\"ready\" is true or false, not {other}.")));
        }
    };
    let entries: Vec<Value> =
        repository::index(context.state, ready).await.iter().map(row).collect();
    Ok(respond::json(StatusCode::OK, &entries))
}

fn row(entry: &IndexEntry) -> Value {
    let mut row = json!({ "name": entry.name, "state": entry.state.as_str() });
    if let Some(version) = &entry.version {
        row["version"] = json!(version);
    }
    if !entry.reason.is_empty() {
        row["reason"] = json!(entry.reason);
    }
    row
}

/// `POST /v2/repository/models/{m}/load`.
pub(super) async fn load(
    context: &RequestContext<'_>,
    body: RequestBody,
    name: &str,
) -> HttpResult {
    let document = document(context, body).await?;
    let parameters = parameters(&document)?.into_iter().flatten();
    let parameters = parameters.map(|(name, value)| (name.as_str(), value.as_str()));
    repository::load(context.state, name, parameters).await?;
    Ok(respond::json(StatusCode::OK, &json!({ "name": name, "load": true })))
}

/// `POST /v2/repository/models/{m}/unload`.
pub(super) async fn unload(
    context: &RequestContext<'_>,
    body: RequestBody,
    name: &str,
) -> HttpResult {
    let document = document(context, body).await?;
    let names = parameters(&document)?.into_iter().flat_map(Map::keys);
    names.map(String::as_str).try_for_each(repository::check_parameter)?;
    repository::unload(context.state, name).await?;
    Ok(respond::json(StatusCode::OK, &json!({ "name": name, "unload": true })))
}

fn parameters(document: &Map<String, Value>) -> Result<Option<&Map<String, Value>>, Problem> {
    match document.get("parameters") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(parameters)) => Ok(Some(parameters)),
        Some(other) => {
            Err(Problem::bad_request(format!("\"parameters\" is an object, not {other}.")))
        }
    }
}

async fn document(
    context: &RequestContext<'_>,
    body: RequestBody,
) -> Result<Map<String, Value>, Problem> {
    let bytes = context.read(body).await?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(document)) => Ok(document),
        Ok(_) => Err(Problem::bad_request("The body is no JSON object.")),
        Err(error) => Err(Problem::bad_request(format!("The body is no JSON: {error}."))),
    }
}
