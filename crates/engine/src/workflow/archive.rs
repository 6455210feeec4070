//! A workflow's archive: `WAR-INF/MANIFEST.json` names the workflow, its specification and the file with
//! its functions. Unpacked by the store like any other archive, and hostile until then.

use std::path::Path;

use serde_json::Value;

use super::error::WorkflowError;
use super::spec::WorkflowSpec;
use crate::store::{Package, parse_yaml, read_text, stays_inside};

/// A workflow that was read and not registered yet.
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
        let function = spec.dag.nodes().iter().find(|node| spec.model(node).is_none());
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
