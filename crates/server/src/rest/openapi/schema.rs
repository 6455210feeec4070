//! Small pieces of OpenAPI: parameters, bodies and answers.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// The type of nearly every answer.
pub(super) const JSON: &str = "application/json";

/// One operation under construction.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApiOperation {
    description: String,
    operation_id: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parameters: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_body: Option<Value>,
    responses: Map<String, Value>,
}

impl ApiOperation {
    /// An operation with its id and what it does.
    pub(super) fn new(id: &str, description: &str) -> Self {
        Self {
            description: description.to_owned(),
            operation_id: id.to_owned(),
            parameters: Vec::new(),
            request_body: None,
            responses: Map::new(),
        }
    }

    /// Adds a segment of the path.
    pub(super) fn path(self, name: &str, description: &str) -> Self {
        self.parameter("path", name, "string", description)
    }

    /// Adds a field of the query.
    pub(super) fn query(self, name: &str, kind: &str, description: &str) -> Self {
        self.parameter("query", name, kind, description)
    }

    /// Adds a header of the request.
    pub(super) fn header(self, name: &str, kind: &str, description: &str) -> Self {
        self.parameter("header", name, kind, description)
    }

    fn parameter(mut self, place: &str, name: &str, kind: &str, description: &str) -> Self {
        self.parameters.push(json!({
            "in": place, "name": name, "description": description, "required": place == "path",
            "schema": { "type": kind },
        }));
        self
    }

    /// Takes any body.
    pub(super) fn any_body(mut self) -> Self {
        let content = json!({ "*/*": { "schema": any_schema() } });
        let body = json!({ "description": "Input.", "content": content });
        self.request_body = Some(body);
        self
    }

    /// Adds an answer of this content type.
    pub(super) fn answers(
        mut self,
        status: &str,
        description: &str,
        content: &str,
        schema: Value,
    ) -> Self {
        let answer =
            json!({ "description": description, "content": { content: { "schema": schema } } });
        self.responses.insert(status.to_owned(), answer);
        self
    }

    /// Adds the answers of things going wrong.
    pub(super) fn fails(mut self, failures: &[(&str, &str)]) -> Self {
        for (status, description) in failures {
            let content = json!({ "application/json": { "schema": error_schema() } });
            let answer = json!({ "description": description, "content": content });
            self.responses.insert((*status).to_owned(), answer);
        }
        self
    }
}

/// `{"status": …}`.
pub(super) fn status_schema() -> Value {
    object(&[("status", "string")])
}

/// Any JSON object.
pub(super) fn object_schema() -> Value {
    json!({ "type": "object" })
}

/// Whatever the model returns.
pub(super) fn any_schema() -> Value {
    json!({ "type": "string", "format": "binary" })
}

fn error_schema() -> Value {
    object(&[("code", "integer"), ("type", "string"), ("message", "string")])
}

/// An object whose fields are all required.
pub(super) fn object(fields: &[(&str, &str)]) -> Value {
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        fields.iter().map(|(name, kind)| ((*name).to_owned(), json!({ "type": kind }))).collect();
    json!({ "type": "object", "required": names, "properties": properties })
}
