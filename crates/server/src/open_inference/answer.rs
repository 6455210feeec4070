//! An answer of the protocol, and how it is written for REST: JSON, with the tensors in it or raw behind
//! it, as the client asked for each.

use bytes::Bytes;
use jitney_engine::Model;
use jitney_engine::tensors::NamedTensor;
use serde::Serialize;

use super::classification;
use super::elements::{BytesForm, JsonList};
use super::request::{OpenInferenceRequest, ParameterMap, RequestedOutput};
use super::shared::SharedOutputs;
use super::shared_location::REGION;
use crate::errors::Problem;

/// An answer in the terms of no transport.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OpenInferenceAnswer {
    pub(crate) id: String,
    pub(crate) model_name: String,
    pub(crate) model_version: String,
    pub(crate) parameters: ParameterMap,
    pub(crate) outputs: Vec<AnswerTensor>,
}

/// An output with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnswerTensor {
    pub(crate) tensor: NamedTensor,
    pub(crate) parameters: ParameterMap,
}

impl AnswerTensor {
    /// Whether it lies in shared memory.
    pub(crate) fn is_shared(&self) -> bool {
        self.parameters.contains_key(REGION)
    }
}

impl From<NamedTensor> for AnswerTensor {
    fn from(tensor: NamedTensor) -> Self {
        Self { tensor, parameters: ParameterMap::new() }
    }
}

impl OpenInferenceAnswer {
    /// The answer with a model's outputs.
    pub(crate) fn new(
        request: &OpenInferenceRequest,
        model: &Model,
        outputs: Vec<AnswerTensor>,
    ) -> Self {
        Self {
            id: request.id.clone(),
            model_name: model.name().to_owned(),
            model_version: model.version().to_owned(),
            parameters: ParameterMap::new(),
            outputs,
        }
    }

    /// Leaves the outputs that the request asks for, in its order, and puts the best classes in the
    /// place of scores where it asks for those.
    ///
    /// # Errors
    /// A sentence when there is no such output, or it has no scores.
    pub(crate) fn select(
        mut self,
        request: &OpenInferenceRequest,
        model: &Model,
    ) -> Result<Self, String> {
        if request.outputs.is_empty() {
            return Ok(self);
        }
        let mut outputs = Vec::with_capacity(request.outputs.len());
        for asked in &request.outputs {
            let found = self.outputs.iter().find(|output| output.tensor.name() == asked.name);
            let found = found.ok_or_else(|| {
                let (model, name) = (model.name(), &asked.name);
                format!("Model {model:?} gave no output {name:?}.")
            })?;
            outputs.push(match asked.classes()? {
                None => found.clone(),
                Some(classes) => {
                    let batches = model.signature().is_some_and(|signature| signature.batches());
                    let labels = model.labels(&asked.name).unwrap_or_default();
                    let top = classification::best(&found.tensor, classes, batches, labels);
                    top.map_err(|why| format!("Model {:?}: {why}.", model.name()))?.into()
                }
            });
        }
        self.outputs = outputs;
        Ok(self)
    }

    /// Writes outputs into shared memory where the request wants them there.
    ///
    /// # Errors
    /// One does not fit, or the memory is gone.
    pub(crate) fn share(&mut self, shared: &SharedOutputs) -> Result<(), Problem> {
        if shared.is_empty() {
            return Ok(());
        }
        for AnswerTensor { tensor, parameters } in &mut self.outputs {
            if let Some(place) = shared.write(tensor)? {
                parameters.extend(place.clone());
            }
        }
        Ok(())
    }

    /// Whether the client asked for this output raw.
    fn is_binary(request: &OpenInferenceRequest, name: &str) -> bool {
        let asked = request.outputs.iter().find(|output| output.name == name);
        asked.and_then(RequestedOutput::binary).unwrap_or_else(|| request.binary_output())
    }

    /// The body for REST, and how much of it is JSON if more follows.
    ///
    /// # Errors
    /// A sentence when JSON has no place for an output.
    pub(crate) fn write(
        &self,
        request: &OpenInferenceRequest,
    ) -> Result<(Bytes, Option<usize>), String> {
        let mut raw: Vec<&Bytes> = Vec::new();
        let outputs = self.outputs.iter().map(|output| {
            let AnswerTensor { tensor, parameters } = output;
            let mut parameters = parameters.clone();
            let data = if output.is_shared() {
                // Triton's clients expect none then.
                parameters.clear();
                None
            } else if Self::is_binary(request, tensor.name()) {
                raw.push(tensor.data());
                parameters.insert("binary_data_size".to_owned(), tensor.data().len().into());
                None
            } else {
                Some(JsonList(tensor, BytesForm::Text))
            };
            let (name, datatype) = (tensor.name(), tensor.datatype().as_str());
            AnswerOutputJson { name, datatype, shape: tensor.shape(), parameters, data }
        });
        let outputs = outputs.collect();
        let answer = AnswerJson {
            id: &self.id,
            model_name: &self.model_name,
            model_version: &self.model_version,
            parameters: &self.parameters,
            outputs,
        };
        let mut body = Vec::with_capacity(
            256 + self.outputs.iter().map(|output| output.tensor.data().len()).sum::<usize>(),
        );
        serde_json::to_writer(&mut body, &answer).map_err(|error| format!("Output {error}."))?;
        let json = (!raw.is_empty()).then_some(body.len());
        raw.into_iter().for_each(|tensor| body.extend_from_slice(tensor));
        Ok((Bytes::from(body), json))
    }
}

#[derive(Serialize)]
struct AnswerJson<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    parameters: &'a ParameterMap,
    outputs: Vec<AnswerOutputJson<'a>>,
}

#[derive(Serialize)]
struct AnswerOutputJson<'a> {
    name: &'a str,
    datatype: &'a str,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    parameters: ParameterMap,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<JsonList<'a>>,
}
