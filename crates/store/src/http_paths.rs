//! The paths of the inference port that a definition in Python answers beside those of its name.

use serde::Deserialize;

/// What a definition wants to be called by, as `jitney-api.json` says it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HttpPaths {
    /// Endpoints that get requests as they came, unparsed.
    pub raw: Vec<String>,
    /// Paths that each call one endpoint.
    pub routes: Vec<HttpRoute>,
    /// Where everything goes to one raw endpoint.
    pub mount: Option<HttpMount>,
}

/// A path that calls an endpoint, as `/NAME/ENDPOINT` does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HttpRoute {
    /// The whole path.
    pub path: String,
    /// The methods; none for those of every prediction.
    pub methods: Vec<String>,
    /// The endpoint.
    pub endpoint: String,
    /// What the server answers by itself, without an endpoint: `live` or `ready`.
    pub answers: Option<String>,
}

/// A prefix, below which everything goes to one raw endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HttpMount {
    /// The prefix; `/` for all paths that the server has no use for.
    pub prefix: String,
    /// The endpoint.
    pub endpoint: String,
}

/// A name under which others know what an endpoint's batches are measured by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MetricName {
    /// The metric's name.
    pub name: String,
    /// Its labels.
    pub labels: std::collections::BTreeMap<String, String>,
}
