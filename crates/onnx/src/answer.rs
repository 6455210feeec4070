//! Words one request's outputs in the form in which the request asked: the Open Inference Protocol's
//! JSON, plain lists, or labels. Runs on the session's thread, since a large answer takes longer to
//! write than many small ones take to serve. Numbers that JSON cannot say (NaN, infinities) become
//! `null`.

use bytes::Bytes;
use serde::Serialize;

use super::card::OutputKind;
use super::model::OnnxModel;
use super::nest::Nest;
use super::ranking::Ranking;
use super::request::{Form, Request};
use super::tensor::Tensor;
use jitney_engine::call::Output;
use jitney_engine::outcome::{Cause, ItemOutcome, ModelFailure};

/// The name and version under which answers speak of the model.
#[derive(Clone, Debug)]
pub(super) struct Identity {
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
    data: Nest<'a>,
}

/// The answer to one request.
pub(super) fn answer(
    model: &OnnxModel,
    identity: &Identity,
    request: &Request,
    outputs: &[Tensor],
) -> ItemOutcome {
    let body = match (request.form, &model.card().output) {
        (Form::OpenInference, _) => open_inference(model, identity, request, outputs),
        (Form::Plain, OutputKind::Tensors) => plain(model, request, outputs),
        (Form::Plain, OutputKind::Labels { labels, top, softmax }) => {
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
    identity: &Identity,
    request: &Request,
    outputs: &[Tensor],
) -> Result<Vec<u8>, String> {
    let named = |place: usize| {
        let (port, tensor) = (model.signature().outputs.get(place)?, outputs.get(place)?);
        let datatype = tensor.datatype().as_str();
        Some(NamedOutput {
            name: &port.name,
            datatype,
            shape: tensor.shape(),
            data: Nest::flat(tensor),
        })
    };
    let outputs = match request.outputs.as_slice() {
        [] => (0..outputs.len()).filter_map(named).collect(),
        wanted => wanted.iter().copied().filter_map(named).collect(),
    };
    write(&OpenInference {
        model_name: &identity.name,
        model_version: &identity.version,
        id: request.id.as_deref(),
        outputs,
    })
}

/// The list of the only output, or an object of lists by output name.
fn plain(model: &OnnxModel, request: &Request, outputs: &[Tensor]) -> Result<Vec<u8>, String> {
    let nests = outputs.iter().map(|tensor| Nest::of(tensor, request.bare));
    let nests: Vec<_> = nests.collect();
    if let [only] = nests.as_slice() {
        return write(only);
    }
    let names = model.signature().outputs.iter().map(|port| port.name.as_str());
    write(&Pairs(names.zip(nests).collect()))
}

/// An object of labels for one item, a list of objects for items that came as a list. Indented as
/// TorchServe's stock handlers are answered, since people read these.
fn labelled(
    ranking: &Ranking<'_>,
    request: &Request,
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
