//! Writes a request's outputs in the form in which the request came: the Open Inference Protocol's JSON,
//! plain lists, or the likeliest labels, as TorchServe's image classifier answers. Runs on the worker's
//! thread, since a large answer takes long to write; elements are written straight from their memory,
//! without a tree of values on the way. Numbers that JSON does not have (NaN, infinities)
//! become `null`.

use bytes::Bytes;
use serde::ser::{Serialize, SerializeSeq, Serializer};

use super::card::OutputKind;
use super::elements::Number;
use super::labels::Ranking;
use super::model::OnnxModel;
use super::request::{BodyForm, DecodedRequest};
use super::tensor::Tensor;
use jitney_engine::call::Output;
use jitney_engine::outcome::{Cause, ItemOutcome, ModelFailure};
use jitney_engine::tensors::{Datatype, NamedTensor, strings};

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
        (BodyForm::Tensors { outputs: requested }, _) => {
            return tensors(model, requested, outputs);
        }
        (BodyForm::Plain, OutputKind::Tensors) => plain(model, request, outputs),
        (BodyForm::Plain, OutputKind::Labels(ranking)) => labelled(ranking, request, outputs),
    };
    let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
    let body = body.map_err(unsupported)?;
    Ok(Output { status: None, headers, body: Bytes::from(body), tensors: None })
}

/// Of all outputs those that were requested; all where none was.
fn tensors(
    model: &OnnxModel,
    requested: &[usize],
    outputs: &[Tensor],
) -> Result<Output, ModelFailure> {
    let all: Vec<usize> = (0..outputs.len()).collect();
    let chosen = if requested.is_empty() { &all[..] } else { requested };
    let chosen = chosen.iter().filter_map(|place| outputs.get(*place).cloned());
    named(model, requested, chosen.collect())
}

/// The answer in tensors, once only what was requested is left.
pub(super) fn named(model: &OnnxModel, requested: &[usize], outputs: Vec<Tensor>) -> ItemOutcome {
    let name = |place: usize| {
        let spec = model.signature.outputs.get(*requested.get(place).unwrap_or(&place));
        spec.map_or("", |spec| &spec.name)
    };
    let tensors = outputs.into_iter().enumerate().map(|(place, it)| it.named(name(place)));
    let tensors = tensors.collect::<Result<Box<[NamedTensor]>, String>>().map_err(unsupported)?;
    Ok(Output { tensors: Some(tensors), ..Output::default() })
}

fn unsupported(message: String) -> ModelFailure {
    ModelFailure::new(Cause::UnsupportedOutput, message)
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

/// A tensor that is written as lists.
pub(super) struct NestedLists<'a> {
    tensor: &'a Tensor,
    /// The elements of BYTES, which cannot be found by their position otherwise.
    texts: Vec<&'a [u8]>,
    shape: &'a [usize],
    flat: bool,
}

/// A part of it, from this element on.
#[derive(Clone, Copy)]
struct NestedList<'a> {
    of: &'a NestedLists<'a>,
    shape: &'a [usize],
    start: usize,
}

impl<'a> NestedLists<'a> {
    /// All elements in one list.
    pub(super) fn flat(tensor: &'a Tensor) -> Self {
        Self { flat: true, ..Self::of(tensor, false) }
    }

    /// Lists as deep as the tensor, or one less where the tensor is a single item that came bare.
    pub(super) fn of(tensor: &'a Tensor, bare: bool) -> Self {
        let shape = match tensor.shape() {
            [1, item @ ..] if bare => item,
            shape => shape,
        };
        let is_text = tensor.datatype() == Datatype::Bytes;
        let texts = if is_text { strings(tensor.data()).collect() } else { Vec::new() };
        Self { tensor, texts, shape, flat: false }
    }

    fn element<S: Serializer>(&self, place: usize, serializer: S) -> Result<S::Ok, S::Error> {
        let datatype = self.tensor.datatype();
        let Some(width) = datatype.width() else {
            let text = self.texts.get(place).copied().unwrap_or_default();
            return serializer.serialize_str(&String::from_utf8_lossy(text));
        };
        let raw = &self.tensor.data()[place * width..][..width];
        match Number::read(datatype, raw) {
            Some(Number::Truth(truth)) => serializer.serialize_bool(truth),
            Some(Number::Whole(whole)) => match i64::try_from(whole) {
                Ok(whole) => serializer.serialize_i64(whole),
                Err(_) => serializer.serialize_u64(whole as u64),
            },
            Some(Number::Single(number)) => serializer.serialize_f32(number),
            Some(Number::Double(number)) => serializer.serialize_f64(number),
            None => serializer.serialize_unit(),
        }
    }
}

impl Serialize for NestedLists<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let count = [self.tensor.elements()];
        let shape = if self.flat { &count[..] } else { self.shape };
        NestedList { of: self, shape, start: 0 }.serialize(serializer)
    }
}

impl Serialize for NestedList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [length, below @ ..] = self.shape else {
            return self.of.element(self.start, serializer);
        };
        let width: usize = below.iter().product();
        let mut list = serializer.serialize_seq(Some(*length))?;
        for place in 0..*length {
            let start = self.start + place * width;
            list.serialize_element(&Self { shape: below, start, ..*self })?;
        }
        list.end()
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
        let data = [1.0, 2.5, f32::NAN, -0.1];
        let tensor = Tensor::of(Datatype::Fp32, vec![1, 2, 2], &data).expect("four elements");
        check(NestedLists::flat(&tensor), "[1.0,2.5,null,-0.1]");
        check(NestedLists::of(&tensor, false), "[[[1.0,2.5],[null,-0.1]]]");
        check(NestedLists::of(&tensor, true), "[[1.0,2.5],[null,-0.1]]");
    }

    #[test]
    fn every_type_is_written_as_json_has_it() {
        let raw = |datatype, shape: &[usize], data: &'static [u8]| {
            Tensor::new(datatype, shape.to_vec(), Bytes::from_static(data)).expect("filled")
        };
        let truths = raw(Datatype::Bool, &[2], &[0, 1]);
        check(NestedLists::of(&truths, false), "[false,true]");
        let texts = raw(Datatype::Bytes, &[2, 1], b"\x01\0\0\0a\x02\0\0\0bc");
        check(NestedLists::of(&texts, false), r#"[["a"],["bc"]]"#);
        let large = raw(Datatype::Uint64, &[1], &[0xff; 8]);
        check(NestedLists::of(&large, false), "[18446744073709551615]");
        let half = raw(Datatype::Fp16, &[1], &[0, 0x3c]);
        check(NestedLists::of(&half, false), "[1.0]");
    }

    #[test]
    fn a_single_number_needs_no_list() {
        let tensor = Tensor::of(Datatype::Int64, vec![], &[7i64]);
        check(NestedLists::of(&tensor.expect("one element"), true), "7");
    }
}
