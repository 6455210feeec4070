//! Writes a request's outputs in the form in which the request came: the Open Inference Protocol's JSON,
//! plain lists, or the likeliest labels, as TorchServe's image classifier answers. Runs on the worker's
//! thread, since a large answer takes long to write; elements are written straight from their memory,
//! without a tree of values on the way. Numbers that JSON does not have (NaN, infinities)
//! become `null`.

use bytes::Bytes;
use serde::ser::{Serialize, SerializeSeq, Serializer};

use super::card::OutputKind;
use super::labels::Ranking;
use super::model::OnnxModel;
use super::request::{BodyForm, DecodedRequest};
use super::tensor::{Tensor, TensorData};
use super::wire;
use jitney_engine::call::Output;
use jitney_engine::outcome::{Cause, ItemOutcome, ModelFailure};
use jitney_engine::tensors::Datatype;

/// The name and version under which answers speak of the model.
#[derive(Clone, Debug)]
pub(super) struct ServedName {
    pub name: String,
    pub version: String,
}

#[derive(serde::Serialize)]
struct OpenInference<'a> {
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    outputs: Vec<NamedOutput<'a>>,
}

#[derive(serde::Serialize)]
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
    let body = match (&request.form, &model.card.output) {
        (BodyForm::OpenInference { id, outputs: requested }, _) => {
            open_inference(model, served, id.as_deref(), requested, outputs)
        }
        (BodyForm::Tensors, _) => Ok(wire::outputs(outputs)),
        (BodyForm::Plain, OutputKind::Tensors) => plain(model, request, outputs),
        (BodyForm::Plain, OutputKind::Labels(ranking)) => labelled(ranking, request, outputs),
    };
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    match body {
        Ok(body) => Ok(Output { status: None, headers, body: Bytes::from(body), tensors: None }),
        Err(message) => {
            Err(ModelFailure { cause: Cause::UnsupportedOutput, status: None, message })
        }
    }
}

fn open_inference(
    model: &OnnxModel,
    served: &ServedName,
    id: Option<&str>,
    requested: &[usize],
    outputs: &[Tensor],
) -> Result<Vec<u8>, String> {
    let named = |place: usize| {
        let (spec, tensor) = (model.signature.outputs.get(place)?, outputs.get(place)?);
        let (datatype, data) = (tensor.datatype().as_str(), NestedLists::flat(tensor));
        Some(NamedOutput { name: &spec.name, datatype, shape: tensor.shape(), data })
    };
    let outputs = match requested {
        [] => (0..outputs.len()).filter_map(named).collect(),
        requested => requested.iter().copied().filter_map(named).collect(),
    };
    let (model_name, model_version) = (&served.name, &served.version);
    write(&OpenInference { model_name, model_version, id, outputs })
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
    let names = model.signature.outputs.iter().map(|spec| spec.name.as_str());
    write(&Pairs(names.zip(nests).collect()))
}

/// An object of labels for one item, a list of objects for items that came as a list. Indented as
/// TorchServe's stock handlers are answered, since people read these.
fn labelled(
    ranking: &Ranking,
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
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

fn write(answer: &impl Serialize) -> Result<Vec<u8>, String> {
    serde_json::to_vec(answer).map_err(|error| error.to_string())
}

/// A part of a tensor that is written as nested lists of this shape.
#[derive(Clone, Copy)]
pub(super) struct NestedLists<'a> {
    tensor: &'a Tensor,
    shape: Shape<'a>,
    start: usize,
}

#[derive(Clone, Copy)]
enum Shape<'a> {
    Nested(&'a [usize]),
    Flat,
}

impl<'a> NestedLists<'a> {
    /// All elements in one list.
    pub(super) fn flat(tensor: &'a Tensor) -> Self {
        Self { tensor, shape: Shape::Flat, start: 0 }
    }

    /// Lists as deep as the tensor, or one less where the tensor is a single item that came bare.
    pub(super) fn of(tensor: &'a Tensor, bare: bool) -> Self {
        let shape = match tensor.shape() {
            [1, item @ ..] if bare => item,
            shape => shape,
        };
        Self { tensor, shape: Shape::Nested(shape), start: 0 }
    }

    fn list<S: Serializer>(
        self,
        serializer: S,
        length: usize,
        below: &'a [usize],
    ) -> Result<S::Ok, S::Error> {
        let width: usize = below.iter().product();
        let mut list = serializer.serialize_seq(Some(length))?;
        for place in 0..length {
            let start = self.start + place * width;
            list.serialize_element(&Self { shape: Shape::Nested(below), start, ..self })?;
        }
        list.end()
    }

    fn element<S: Serializer>(self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.tensor.data() {
            TensorData::F32(data) => serializer.serialize_f32(data[self.start]),
            TensorData::I32(data) if self.tensor.datatype() == Datatype::Bool => {
                serializer.serialize_bool(data[self.start] != 0)
            }
            TensorData::I32(data) => serializer.serialize_i32(data[self.start]),
            TensorData::I8(data) => serializer.serialize_i8(data[self.start]),
            TensorData::U8(data) => serializer.serialize_u8(data[self.start]),
        }
    }
}

impl Serialize for NestedLists<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.shape {
            Shape::Flat => self.list(serializer, self.tensor.data().len(), &[]),
            Shape::Nested([length, below @ ..]) => self.list(serializer, *length, below),
            Shape::Nested([]) => self.element(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(nest: NestedLists<'_>, expected: &str) {
        assert_eq!(serde_json::to_string(&nest).expect("numbers"), expected);
    }

    #[test]
    fn elements_are_written_flat_nested_or_without_the_batch() {
        let data = TensorData::F32(vec![1.0, 2.5, f32::NAN, -0.1]);
        let tensor = Tensor::new(Datatype::Fp32, vec![1, 2, 2], data).expect("four elements");
        check(NestedLists::flat(&tensor), "[1.0,2.5,null,-0.1]");
        check(NestedLists::of(&tensor, false), "[[[1.0,2.5],[null,-0.1]]]");
        check(NestedLists::of(&tensor, true), "[[1.0,2.5],[null,-0.1]]");
    }

    #[test]
    fn truth_values_are_written_as_such() {
        let tensor = Tensor::new(Datatype::Bool, vec![2], TensorData::I32(vec![0, 1]));
        check(NestedLists::of(&tensor.expect("two elements"), false), "[false,true]");
    }

    #[test]
    fn a_single_number_needs_no_list() {
        let tensor = Tensor::new(Datatype::Int64, vec![], TensorData::I32(vec![7]));
        check(NestedLists::of(&tensor.expect("one element"), true), "7");
    }
}
