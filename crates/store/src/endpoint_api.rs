//! What the API description of a definition in Python says of its endpoints: how requests to them are measured, and
//! which paths they answer. Both are written down when the definition is packed. The server reads the measures
//! before a request waits: how many items it brings, what it costs, and which others may share its batch.

use std::num::NonZeroU64;

use serde::Deserialize;

/// How the size of a request to one endpoint is read. Endpoints of which nothing is to be read have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RequestSizes {
    /// The parameters that requests may bring, in order.
    pub params: Vec<SizedParam>,
    /// Whether it takes parameters of any other name too.
    pub takes_any: bool,
    /// The dimension of arrays that counts items; from the end if it is negative.
    pub batch_dim: i32,
    /// What a request costs.
    pub cost: Option<SizeExpression>,
    /// The group of requests that may share a batch.
    pub bucket: Option<SizeExpression>,
}

/// A parameter of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SizedParam {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub form: ValueForm,
    /// Whether a request must bring it.
    #[serde(default)]
    pub required: bool,
    /// Whether the rows of an array are items; otherwise any value is one item.
    #[serde(default)]
    pub rows: bool,
}

/// What the values of a parameter are, by its type hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueForm {
    /// Arrays and tensors.
    Array,
    /// Tables: frames and series.
    Frame,
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// Lists, objects and whatever else JSON says.
    Json,
    /// There is no hint: a value stays what it came as.
    Any,
}

/// A number that follows from the sizes of a request's values: its factors, from the left.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SizeExpression(pub Vec<SizeFactor>);

/// One factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SizeFactor {
    /// A number to multiply by.
    Times(u64),
    /// A number to divide by, rounding down.
    Over(NonZeroU64),
    /// The size of a value: the characters of a text, the elements of a list, one dimension of an array.
    Dim {
        /// The parameter's place.
        param: usize,
        /// The dimension; from the end if it is negative.
        dim: i32,
    },
}

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
    /// What the server answers by itself, without a worker: `live` or `ready`, or of a task `submit`, `status`, `get`,
    /// `cancel` or `retry`.
    pub answers: Option<String>,
    /// Whether other models may have the path, too; the first of them answers it.
    pub shared: bool,
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
