//! What a model says about its tensors: a definition when it is packed, an archive in its YAML. It is only
//! read here; the engine knows datatypes.

use serde::Deserialize;
use serde_json::{Map, Value};

/// One input or output.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PackedTensor {
    /// Its name.
    pub name: String,
    /// Its datatype, as the Open Inference Protocol names it.
    pub datatype: String,
    /// Its shape with the batch dimension; -1 for any size.
    pub shape: Vec<i64>,
    /// Whether a request must bring it.
    #[serde(default)]
    pub required: bool,
    /// Whether it is an array whose rows are joined with those of other requests.
    #[serde(default)]
    pub rows: bool,
    /// Whether requests are held to datatype and shape. Others are only told to clients.
    #[serde(default)]
    pub checked: bool,
}

/// What counts as an item of a request in tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemForm {
    /// A row along the batch dimension.
    Rows,
    /// What lies behind one number of the first dimension.
    Elements,
    /// The request.
    #[default]
    Whole,
}

/// The tensors of an endpoint, or of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PackedTensors {
    /// What it takes.
    pub inputs: Vec<PackedTensor>,
    /// What it gives, as far as that is known beforehand.
    pub outputs: Vec<PackedTensor>,
    /// What counts as an item.
    pub items: ItemForm,
    /// The dimension that counts rows; from the end if it is negative.
    pub batch_dim: i32,
    /// Whether it takes inputs of any other name too.
    pub takes_any: bool,
}

impl PackedTensors {
    /// Those of an archive's YAML; none if it says nothing that can be read as such, since its
    /// keys are the handler's.
    pub(crate) fn of_archive(yaml: &Map<String, Value>) -> Option<Self> {
        let tensors = |key: &str| {
            yaml.get(key).cloned().map(serde_json::from_value::<Vec<PackedTensor>>).transpose()
        };
        let found = tensors("inputs").and_then(|inputs| Ok((inputs, tensors("outputs")?)));
        match found {
            Ok((None, None)) => None,
            Ok((inputs, outputs)) => Some(Self {
                inputs: inputs.unwrap_or_default(),
                outputs: outputs.unwrap_or_default(),
                ..Self::default()
            }),
            Err(error) => {
                tracing::warn!(%error, "inputs and outputs of the model's YAML declare no tensors, ignored");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_archive_may_declare_its_tensors_and_may_mean_something_else() {
        let read = |yaml: Value| PackedTensors::of_archive(yaml.as_object().expect("a map"));
        assert_eq!(read(json!({"minWorkers": 1})), None);
        assert_eq!(read(json!({"inputs": "image.jpg"})), None);
        let declared = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]});
        let read = read(declared).expect("tensors");
        assert_eq!((read.inputs[0].name.as_str(), read.outputs.len()), ("x", 0));
    }
}
