//! Writes a request's outputs in the form in which the request came: the Open Inference Protocol's JSON,
//! plain lists, or the likeliest labels, as TorchServe's image classifier answers. Runs on the worker's
//! thread, since a large answer takes long to write. Numbers that JSON does not have (NaN, infinities)
//! become `null`.

use bytes::Bytes;
use serde::Serialize;

use super::card::OutputKind;
use super::model::OnnxModel;
use super::nest::NestedLists;
use super::request::{BodyForm, DecodedRequest};
use super::tensor::{Tensor, TensorData};
use jitney_engine::call::Output;
use jitney_engine::outcome::{Cause, ItemOutcome, ModelFailure};

/// The name and version under which answers speak of the model.
#[derive(Clone, Debug)]
pub(super) struct ServedName {
    pub name: String,
    pub version: String,
}

#[derive(Serialize)]
struct OpenInference<'a> {
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    outputs: Vec<NamedOutput<'a>>,
}

#[derive(Serialize)]
struct NamedOutput<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    data: NestedLists<'a>,
}

/// The answer to one request.
pub(super) fn answer(
    model: &OnnxModel,
    served: &ServedName,
    request: &DecodedRequest,
    outputs: &[Tensor],
) -> ItemOutcome {
    let body = match (request.form, &model.card().output) {
        (BodyForm::OpenInference, _) => open_inference(model, served, request, outputs),
        (BodyForm::Plain, OutputKind::Tensors) => plain(model, request, outputs),
        (BodyForm::Plain, OutputKind::Labels { labels, top, softmax }) => {
            let ranking = Ranking { labels, top: *top, softmax: *softmax };
            labelled(&ranking, request, outputs)
        }
    };
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    match body {
        Ok(body) => Ok(Output { status: None, headers, body: Bytes::from(body) }),
        Err(message) => {
            Err(ModelFailure { cause: Cause::UnsupportedOutput, status: None, message })
        }
    }
}

fn open_inference(
    model: &OnnxModel,
    served: &ServedName,
    request: &DecodedRequest,
    outputs: &[Tensor],
) -> Result<Vec<u8>, String> {
    let named = |place: usize| {
        let (spec, tensor) = (model.signature().outputs.get(place)?, outputs.get(place)?);
        let datatype = tensor.datatype().as_str();
        Some(NamedOutput {
            name: &spec.name,
            datatype,
            shape: tensor.shape(),
            data: NestedLists::flat(tensor),
        })
    };
    let outputs = match request.outputs.as_slice() {
        [] => (0..outputs.len()).filter_map(named).collect(),
        requested => requested.iter().copied().filter_map(named).collect(),
    };
    write(&OpenInference {
        model_name: &served.name,
        model_version: &served.version,
        id: request.id.as_deref(),
        outputs,
    })
}

/// The list of the only output, or an object of lists by output name.
fn plain(
    model: &OnnxModel,
    request: &DecodedRequest,
    outputs: &[Tensor],
) -> Result<Vec<u8>, String> {
    let nests = outputs.iter().map(|tensor| NestedLists::of(tensor, request.bare));
    let nests: Vec<_> = nests.collect();
    if let [only] = nests.as_slice() {
        return write(only);
    }
    let names = model.signature().outputs.iter().map(|spec| spec.name.as_str());
    write(&Pairs(names.zip(nests).collect()))
}

/// An object of labels for one item, a list of objects for items that came as a list. Indented as
/// TorchServe's stock handlers are answered, since people read these.
fn labelled(
    ranking: &Ranking<'_>,
    request: &DecodedRequest,
    outputs: &[Tensor],
) -> Result<Vec<u8>, String> {
    let output = outputs.first().ok_or("the model gave no output")?;
    let mut items: Vec<_> = ranking.rows(output)?.into_iter().map(Pairs).collect();
    let written = match items.pop_if(|_| request.bare) {
        Some(item) => serde_json::to_vec_pretty(&item),
        None => serde_json::to_vec_pretty(&items),
    };
    written.map_err(|error| error.to_string())
}

/// A JSON object in a given order.
struct Pairs<'a, T>(Vec<(&'a str, T)>);

impl<T: Serialize> Serialize for Pairs<'_, T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

fn write(answer: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(answer).map_err(|error| error.to_string())
}

/// How rows become labels.
pub(super) struct Ranking<'a> {
    /// One label per class.
    pub labels: &'a [String],
    /// How many are named.
    pub top: usize,
    /// Whether rows still have to be made into probabilities.
    pub softmax: bool,
}

impl<'a> Ranking<'a> {
    /// The likeliest labels of every row, the likeliest first.
    pub(super) fn rows(&self, output: &Tensor) -> Result<Vec<Vec<(&'a str, f32)>>, String> {
        let TensorData::F32(data) = output.data() else {
            return Err(format!("labels need an FP32 output, this is {}", output.datatype()));
        };
        let classes = self.labels.len();
        if classes == 0 || output.shape().last() != Some(&classes) {
            return Err(format!("{classes} labels for an output of shape {:?}", output.shape()));
        }
        Ok(data.chunks_exact(classes).map(|row| self.row(row)).collect())
    }

    fn row(&self, row: &[f32]) -> Vec<(&'a str, f32)> {
        let probabilities = if self.softmax { softmax(row) } else { row.to_vec() };
        let labels = self.labels.iter().map(String::as_str);
        let mut ranked: Vec<(&str, f32)> = labels.zip(probabilities).collect();
        // Stable, so that classes of equal weight keep the model's order.
        ranked.sort_by(|left, right| right.1.total_cmp(&left.1));
        ranked.truncate(self.top);
        ranked
    }
}

/// Shifted by the largest number, which no exponential can then overflow.
fn softmax(row: &[f32]) -> Vec<f32> {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = row.iter().map(|number| (number - max).exp()).collect();
    let total: f32 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitney_engine::local::Datatype;

    fn rows(numbers: &[f32], softmax: bool) -> Result<Vec<Vec<(&'static str, f32)>>, String> {
        let labels = ["cat", "dog", "owl"].map(str::to_owned).to_vec();
        let shape = vec![numbers.len() / 3, 3];
        let tensor = Tensor::new(Datatype::Fp32, shape, TensorData::F32(numbers.to_vec()));
        let ranking = Ranking { labels: labels.leak(), top: 2, softmax };
        ranking.rows(&tensor.expect("rows of three"))
    }

    #[test]
    fn the_likeliest_labels_come_first_and_ties_keep_their_order() {
        let expected = vec![vec![("owl", 0.7), ("dog", 0.2)], vec![("cat", 0.4), ("dog", 0.4)]];
        assert_eq!(rows(&[0.1, 0.2, 0.7, 0.4, 0.4, 0.2], false), Ok(expected));
    }

    #[test]
    fn softmax_gives_probabilities_even_for_huge_numbers() {
        let rows = rows(&[1000.0, 1000.0, 0.0], true).expect("three classes");
        assert_eq!(rows, vec![vec![("cat", 0.5), ("dog", 0.5)]]);
    }

    #[test]
    fn an_output_of_another_width_is_rejected() {
        let tensor = Tensor::new(Datatype::Fp32, vec![1, 2], TensorData::F32(vec![0.5, 0.5]));
        let labels = ["cat".to_owned()];
        let ranking = Ranking { labels: &labels, top: 1, softmax: false };
        let error = ranking.rows(&tensor.expect("two elements"));
        assert_eq!(error, Err("1 labels for an output of shape [1, 2]".to_owned()));
    }
}
