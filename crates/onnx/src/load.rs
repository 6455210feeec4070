//! Everything between a file and a model that can be trusted: the file is looked through before the
//! rten sees it, panics of rten are caught, and the card is checked against what the model takes
//! and gives. All that can go wrong without a request goes wrong here, at load.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rten::{Dimension, Model, NodeId, ValueType};

use super::card::{Card, InputKind, OutputKind};
use super::file;
use super::value;
use jitney_engine::local::Datatype;
use jitney_engine::local::{Dim, Signature, TensorSpec};

/// Why a file cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OnnxError {
    /// The file could not be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// rten does not load the model.
    #[error("model {name:?} does not load: {reason}")]
    Load {
        /// The model.
        name: String,
        /// What rten reported.
        reason: String,
    },
    /// The card is wrong, or wrong for this model.
    #[error("the card of model {name:?}: {reason}")]
    Card {
        /// The model.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

/// The element types that a file declares, by the names of its inputs and outputs.
pub(super) type DeclaredTypes = HashMap<String, Datatype>;

/// The types that the file declares, once it is known to be safe for rten.
pub(super) fn examine(name: &str, bytes: &[u8]) -> Result<DeclaredTypes, OnnxError> {
    file::check(bytes).map_err(|_| OnnxError::Load {
        name: name.to_owned(),
        reason: "it is not an ONNX file, or it is damaged".to_owned(),
    })?;
    Ok(file::datatypes(bytes))
}

/// Runs rten's loader, which may panic on files that no exporter made.
pub(super) fn load<E: std::fmt::Display>(
    name: &str,
    loader: impl FnOnce() -> Result<Model, E>,
) -> Result<Model, OnnxError> {
    let failed = |reason: String| OnnxError::Load { name: name.to_owned(), reason };
    match catch_unwind(AssertUnwindSafe(loader)) {
        Ok(loaded) => loaded.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed("the loader panicked on it".to_owned())),
    }
}

/// What the model takes and gives, as rten and the file have it.
pub(super) fn signature(
    name: &str,
    graph: &Model,
    declared: &DeclaredTypes,
) -> Result<Signature, OnnxError> {
    let specs = |ids: &[NodeId], guess| -> Result<Vec<TensorSpec>, String> {
        ids.iter().map(|id| spec(graph, *id, declared, guess)).collect()
    };
    // A file may leave the type of an output unsaid; single precision is the likeliest.
    specs(graph.input_ids(), None)
        .and_then(|inputs| {
            Ok(Signature { inputs, outputs: specs(graph.output_ids(), Some(Datatype::Fp32))? })
        })
        .and_then(serves)
        .map_err(|reason| OnnxError::Load { name: name.to_owned(), reason })
}

fn spec(
    graph: &Model,
    id: NodeId,
    declared: &DeclaredTypes,
    guess: Option<Datatype>,
) -> Result<TensorSpec, String> {
    let node = graph.node_info(id).ok_or("an input or output is not in the graph")?;
    let name = node.name().unwrap_or_default().to_owned();
    let held = match node.dtype() {
        Some(ValueType::Tensor(held)) => value::datatype(held),
        Some(_) => return Err(format!("{name:?} is no tensor")),
        None => None,
    };
    let datatype = declared.get(&name).copied().or(held).or(guess);
    let datatype = datatype.ok_or_else(|| format!("{name:?} has a type that is not served"))?;
    let shape = node.shape().map(|shape| shape.into_iter().map(dim).collect());
    Ok(TensorSpec { name, datatype, shape })
}

fn dim(dimension: Dimension) -> Dim {
    match dimension {
        Dimension::Fixed(size) => Dim::Fixed(size),
        Dimension::Symbolic(name) => Dim::Open(name),
    }
}

/// To rten an empty file is an empty model, which cannot answer anything.
fn serves(signature: Signature) -> Result<Signature, String> {
    if signature.inputs.is_empty() || signature.outputs.is_empty() {
        return Err("it has no inputs or no outputs".to_owned());
    }
    Ok(signature)
}

/// Whether the card's processing fits what the model takes and gives.
pub(super) fn suits(card: &Card, signature: &Signature) -> Result<(), String> {
    if let InputKind::FileBytes(features) = &card.input {
        let width = features.width();
        let row = [Dim::Fixed(width)];
        let fits = |spec: &TensorSpec| {
            Datatype::Int32.admits(spec.datatype)
                && spec.shape.as_ref().is_some_and(|shape| shape.len() == 2 && shape[1..] == row)
        };
        if !(signature.inputs.len() == 1 && signature.inputs.iter().all(fits)) {
            let got = signature
                .inputs
                .iter()
                .map(TensorSpec::to_string)
                .collect::<Vec<_>>()
                .join(" and ");
            return Err(format!(
                "file-bytes makes INT32 of shape [n, {width}], the model takes {got}"
            ));
        }
    }
    if let Some(pads) = &card.padding {
        pads.suit(signature)?;
    }
    if let OutputKind::Labels { labels, .. } = &card.output {
        let classes = signature.outputs.first().and_then(|spec| spec.shape.as_ref()?.last());
        if let Some(Dim::Fixed(classes)) = classes
            && *classes != labels.len()
        {
            return Err(format!("{} labels for a model of {classes} classes", labels.len()));
        }
    }
    Ok(())
}
