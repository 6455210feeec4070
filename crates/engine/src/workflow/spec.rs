//! A workflow's specification: its models, what is set about them, and their order. Reads the YAML once
//! and strictly: unknown keys are rejected, since a workflow without them would be another one.

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use super::dag::{Dag, DagError};
use super::error::WorkflowError;
use crate::store::{Package, parse_yaml, read_text, stays_inside};

/// How often a failed node may be tried again; more would only hide a broken one.
const RETRIES_MAX: u64 = 100;

/// What is set about a node; the specification sets it for all models and overrides it for single ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// `min-workers`, which is only described.
    pub workers_min: u32,
    /// `max-workers`: the workers that a model node is started with.
    pub workers_max: u32,
    /// `batch-size`.
    pub batch_size: u32,
    /// `max-batch-delay` in milliseconds.
    pub batch_delay_ms: u64,
    /// `retry-attempts`: tries after the first one.
    pub retries: u32,
    /// `timeout-ms`: how long one try may take.
    pub timeout: Duration,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            workers_min: 1,
            workers_max: 1,
            batch_size: 1,
            batch_delay_ms: 50,
            retries: 1,
            timeout: Duration::from_secs(10),
        }
    }
}

impl NodeSettings {
    /// Takes over a setting; false if there is none of this name.
    fn set(&mut self, key: &str, value: &Value) -> Result<bool, DagError> {
        match key {
            "min-workers" => self.workers_min = number(key, value, 0, u64::from(u16::MAX))? as u32,
            "max-workers" => self.workers_max = number(key, value, 1, u64::from(u16::MAX))? as u32,
            "batch-size" => self.batch_size = number(key, value, 1, u64::from(u16::MAX))? as u32,
            "max-batch-delay" => self.batch_delay_ms = number(key, value, 0, u64::from(u32::MAX))?,
            "retry-attempts" => self.retries = number(key, value, 0, RETRIES_MAX)? as u32,
            "timeout-ms" => {
                self.timeout = Duration::from_millis(number(key, value, 1, u64::from(u32::MAX))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A node that is a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelNode {
    /// Where its archive is.
    pub url: String,
    /// What is set about it.
    pub settings: NodeSettings,
}

/// What a workflow is made of. A node of the DAG that is no model is a function of the handler file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowSpec {
    /// What applies to every node.
    pub settings: NodeSettings,
    /// The models by node name, in the order of the specification.
    pub models: Vec<(String, ModelNode)>,
    /// The order.
    pub dag: Dag,
}

impl WorkflowSpec {
    /// Reads a specification.
    pub(crate) fn from_yaml(document: &Map<String, Value>) -> Result<Self, DagError> {
        if let Some(key) = document.keys().find(|key| !matches!(key.as_str(), "models" | "dag")) {
            return Err(malformed(format!("unknown key {key:?}; known: models, dag")));
        }
        let none = Map::new();
        let models = section(document, "models")?.unwrap_or(&none);
        let mut settings = NodeSettings::default();
        let mut nodes = Vec::new();
        for (key, value) in models {
            if let Value::Object(model) = value {
                nodes.push((key.clone(), model));
            } else if !settings.set(key, value)? {
                return Err(unknown("models", key));
            }
        }
        let model = |(name, map): (String, &Map<String, Value>)| {
            Ok((name.clone(), model(&name, map, &settings)?))
        };
        let models = nodes.into_iter().map(model).collect::<Result<_, DagError>>()?;
        let dag = Dag::new(&edges(section(document, "dag")?.unwrap_or(&none))?)?;
        Ok(Self { settings, models, dag })
    }

    /// The model behind a node; `None` for a function.
    pub fn model(&self, node: &str) -> Option<&ModelNode> {
        self.models.iter().find(|(name, _)| name == node).map(|(_, model)| model)
    }
}

fn model(
    name: &str,
    map: &Map<String, Value>,
    settings: &NodeSettings,
) -> Result<ModelNode, DagError> {
    let mut settings = settings.clone();
    let mut url = None;
    for (key, value) in map {
        if let (Value::String(text), "url") = (value, key.as_str()) {
            url = Some(text.clone());
        } else if !settings.set(key, value)? {
            return Err(unknown(&format!("models.{name}"), key));
        }
    }
    let url = url.ok_or_else(|| malformed(format!("models.{name} has no url")))?;
    Ok(ModelNode { url, settings })
}

/// Every node with its successors: a list, a lone name, or nothing.
fn edges(dag: &Map<String, Value>) -> Result<Vec<(String, Vec<String>)>, DagError> {
    let successors = |node: &str, value: &Value| match value {
        Value::Null => Ok(Vec::new()),
        Value::String(one) => Ok(vec![one.clone()]),
        Value::Array(names) => {
            let name = |name: &Value| name.as_str().map(str::to_owned);
            names.iter().map(name).collect::<Option<_>>().ok_or_else(|| no_list(node))
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(no_list(node)),
    };
    dag.iter().map(|(node, value)| Ok((node.clone(), successors(node, value)?))).collect()
}

fn section<'a>(
    document: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a Map<String, Value>>, DagError> {
    match document.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(_) => Err(malformed(format!("{key} must be a mapping"))),
    }
}

fn number(key: &str, value: &Value, least: u64, most: u64) -> Result<u64, DagError> {
    let fits = |number: &u64| (least..=most).contains(number);
    value.as_u64().filter(fits).ok_or_else(|| {
        malformed(format!("{key} must be a whole number from {least} to {most}, not {value}"))
    })
}

fn no_list(node: &str) -> DagError {
    malformed(format!("dag.{node} must be a list of node names"))
}

fn unknown(section: &str, key: &str) -> DagError {
    malformed(format!(
        "unknown key {key:?} in {section}; known: url (of a model), min-workers, max-workers, \
         batch-size, max-batch-delay, retry-attempts, timeout-ms"
    ))
}

fn malformed(why: String) -> DagError {
    DagError::Malformed(why)
}

/// A workflow that was read and not registered yet: `WAR-INF/MANIFEST.json` of its archive names it, its
/// specification and the file with its functions. Unpacked by the store like any other archive, and
/// hostile until then.
#[derive(Debug)]
pub(crate) struct WorkflowArchive {
    /// Its own name.
    pub(crate) name: Option<String>,
    /// The file with its functions, if it has any.
    pub(crate) handler: Option<String>,
    pub(crate) spec: WorkflowSpec,
    /// Where its files are; removed with this value.
    pub(crate) package: Package,
}

impl WorkflowArchive {
    /// Reads an unpacked archive.
    pub(crate) fn read(package: Package) -> Result<Self, WorkflowError> {
        let dir = package.dir.path();
        let manifest = manifest(dir)?;
        let workflow = &manifest["workflow"];
        let Some(spec_file) = file(workflow, "specFile")? else {
            return Err(invalid("its manifest names no specFile"));
        };
        let handler = file(workflow, "handler")?;
        let spec = spec(&dir.join(&spec_file), &spec_file)?;
        let function = spec.dag.nodes.iter().find(|node| spec.model(node).is_none());
        if let (Some(node), None) = (function, &handler) {
            return Err(invalid(&format!(
                "node {node} is no model, and there is no handler file whose function it could be"
            )));
        }
        let name = text(workflow, "workflowName");
        Ok(Self { name, handler, spec, package })
    }
}

fn manifest(dir: &Path) -> Result<Value, WorkflowError> {
    let text = read_text(&dir.join("WAR-INF").join("MANIFEST.json"))
        .map_err(|error| invalid(&format!("WAR-INF/MANIFEST.json: {error}")))?;
    serde_json::from_str(&text).map_err(|error| invalid(&format!("WAR-INF/MANIFEST.json: {error}")))
}

fn spec(path: &Path, name: &str) -> Result<WorkflowSpec, WorkflowError> {
    let text = read_text(path).map_err(|error| invalid(&format!("{name}: {error}")))?;
    let document = parse_yaml(&text).map_err(|error| invalid(&format!("{name}: {error}")))?;
    Ok(WorkflowSpec::from_yaml(&document)?)
}

fn text(workflow: &Value, key: &str) -> Option<String> {
    workflow[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn file(workflow: &Value, key: &str) -> Result<Option<String>, WorkflowError> {
    let name = text(workflow, key);
    if name.as_deref().is_none_or(stays_inside) {
        Ok(name)
    } else {
        Err(invalid(&format!("{key} points outside the archive")))
    }
}

fn invalid(why: &str) -> WorkflowError {
    WorkflowError::Invalid(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<WorkflowSpec, DagError> {
        WorkflowSpec::from_yaml(&parse_yaml(yaml).unwrap())
    }

    #[test]
    fn a_model_overrides_what_is_said_for_all() {
        let spec = read(
            "models:\n  min-workers: 2\n  max-workers: 4\n  batch-size: 3\n  max-batch-delay: 20\n  \
             retry-attempts: 5\n  timeout-ms: 300\n  one:\n    url: one.mar\n  two:\n    url: two.mar\n    \
             max-workers: 1\n    retry-attempts: 0\n    timeout-ms: 9\n\
             dag:\n  before: [one, two]\n  one: [after]\n  two: after\n  after:\n",
        )
        .unwrap();
        assert_eq!(spec.dag.to_string(), "{before=[one, two], one=[after], two=[after], after=[]}");
        let [one, two] = ["one", "two"].map(|name| spec.model(name).unwrap().clone());
        assert_eq!((one.url.as_str(), &one.settings), ("one.mar", &spec.settings));
        assert_eq!((two.settings.workers_max, two.settings.retries), (1, 0));
        assert_eq!(two.settings.timeout, Duration::from_millis(9));
        assert_eq!((two.settings.workers_min, two.settings.batch_size), (2, 3));
        assert!(spec.model("before").is_none());
    }

    #[test]
    fn silence_means_torchserves_defaults() {
        let spec = read("dag:\n  a: [b]\n").unwrap();
        assert_eq!((spec.settings, spec.models), (NodeSettings::default(), Vec::new()));
    }

    #[test]
    fn what_cannot_be_meant_is_rejected() {
        for (yaml, part) in [
            ("models: 3\ndag: {a: }", "models must be a mapping"),
            ("models: {}", "dag names no node"),
            ("dag: [a]", "dag must be a mapping"),
            ("dag: {a: 3}", "dag.a must be a list of node names"),
            ("dag: {a: [1]}", "dag.a must be a list of node names"),
            ("modles: {}\ndag: {a: }", "unknown key \"modles\""),
            ("models: {batchsize: 3}\ndag: {a: }", "unknown key \"batchsize\" in models"),
            ("models: {m: {}}\ndag: {m: }", "models.m has no url"),
            ("models: {m: {url: 3}}\ndag: {m: }", "unknown key \"url\" in models.m"),
            ("models: {batch-size: 0}\ndag: {a: }", "batch-size must be a whole number from 1"),
            ("models: {timeout-ms: soon}\ndag: {a: }", "timeout-ms must be a whole number"),
            ("models: {retry-attempts: 1000}\ndag: {a: }", "from 0 to 100, not 1000"),
        ] {
            let error = read(yaml).unwrap_err().to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }
}
