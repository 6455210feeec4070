//! One request of a model that wires others: its parts are called one after another or side by side.
//!
//! Between parts travel the values of handles, so that a part gets what the one before it gave: arrays, bytes, tuples.
//! A client of HTTP sends and gets other forms; a header that no client can send tells the first and the last part to
//! answer in the other form than they were asked in.

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::try_join_all;
use serde_json::Value;

use super::WiredModel;
use crate::call::{CALL_PARAMETER, Call, CallRoute, Output, Parameter};
use crate::error::CallError;
use crate::outcome::ModelFailure;
use crate::pool::BoxFuture;
use crate::store::Wiring;

/// Asks a definition for an answer in the other form than its arguments have.
const OTHER_FORM_HEADER: &str = "jitney other form";
/// The content type of an answer that is a value.
const VALUE_TYPE: &str = "application/x-jitney-value";
const JSON_TYPE: &str = "application/json";
/// What an exception begins with that is meant for a handle; a list follows, with its message in this place.
const FAILURE_MARK: &str = "jitney-exception ";
const FAILURE_MESSAGE: usize = 2;
/// The value of a tuple with one element begins like this.
const TUPLE_OF_ONE: &[u8] = b"t\x01\0\0\0";

/// What a part gets.
#[derive(Clone)]
enum Given {
    /// What the request brought.
    Request,
    /// What the part before it gave.
    Value(Bytes),
}

/// A running request.
struct WiredRun<'a> {
    model: &'a WiredModel,
    /// What the request brings.
    call: Call,
    /// Whether it came through a handle, and is answered with a value.
    in_values: bool,
}

/// Runs a request through the whole wiring. Dropping the future cancels it wherever it is.
pub(super) async fn run(model: &WiredModel, call: Call) -> Result<Output, CallError> {
    if call.input.tensors.is_some() {
        let name = "a chain or fan-out takes arguments by name or through a handle, and no tensors";
        return Err(CallError::BadInput(name.to_owned()));
    }
    let in_values = call.input.parameters.iter().any(|it| it.name == CALL_PARAMETER);
    let run = WiredRun { model, call, in_values };
    run.stage(&model.wiring, Given::Request, true).await
}

impl WiredRun<'_> {
    /// Runs a part of the wiring. What the `last` one gives goes to the client.
    fn stage<'a>(
        &'a self,
        wiring: &'a Wiring,
        given: Given,
        last: bool,
    ) -> BoxFuture<'a, Result<Output, CallError>> {
        Box::pin(async move {
            match wiring {
                Wiring::Part(at) => self.call_part(*at, given, last).await,
                Wiring::Chain(stages) => self.chain(stages, given, last).await,
                Wiring::FanOut(branches) => {
                    let outputs = self.side_by_side(branches.iter(), given, last).await?;
                    self.join(&[], outputs, last)
                }
                Wiring::Named(branches) => {
                    let (names, branches): (Vec<_>, Vec<_>) =
                        branches.iter().map(|(name, branch)| (name.as_str(), branch)).unzip();
                    let outputs = self.side_by_side(branches.into_iter(), given, last).await?;
                    self.join(&names, outputs, last)
                }
            }
        })
    }

    async fn chain(
        &self,
        stages: &[Wiring],
        mut given: Given,
        last: bool,
    ) -> Result<Output, CallError> {
        let mut output = Output::default();
        for (at, stage) in stages.iter().enumerate() {
            output = self.stage(stage, given, last && at + 1 == stages.len()).await?;
            given = Given::Value(output.body.clone());
        }
        Ok(output)
    }

    async fn side_by_side<'a>(
        &'a self,
        branches: impl Iterator<Item = &'a Wiring>,
        given: Given,
        last: bool,
    ) -> Result<Vec<Output>, CallError> {
        try_join_all(branches.map(|branch| self.stage(branch, given.clone(), last))).await
    }

    async fn call_part(&self, at: usize, given: Given, last: bool) -> Result<Output, CallError> {
        let Some(model) = self.model.part(at) else { return Err(CallError::Gone) };
        let answers_value = self.in_values || !last;
        let asks_value = self.in_values || matches!(given, Given::Value(_));
        let mut input = self.call.input.clone();
        input.route = CallRoute::to_endpoint("");
        if asks_value != answers_value {
            input.headers.push(OTHER_FORM_HEADER, b"1");
        }
        if let Given::Value(value) = given {
            let value = [TUPLE_OF_ONE, &value].concat();
            let (name, content_type) = (CALL_PARAMETER.into(), "".into());
            input.parameters =
                vec![Parameter { name, content_type, value: Bytes::from(value).into() }];
        }
        let call = Call { input, ..self.call.clone() };
        let _slot = self.model.queue_slots.acquire(&model, call.deadline).await?;
        let answer = model.call_admitted(call).await.map_err(|error| self.told_to_client(error))?;
        match answer.stream {
            None => Ok(answer.output),
            Some(_) => Err(failed(format!("{} streams, which is not passed on", model.name()))),
        }
    }

    /// A failure of a part that was asked for a value, in the words for a client of HTTP.
    fn told_to_client(&self, mut error: CallError) -> CallError {
        if let CallError::Model(failure) = &mut error
            && !self.in_values
        {
            failure.message = plain_message(std::mem::take(&mut failure.message));
        }
        error
    }

    /// What several parts gave: a list, or an object where they have names.
    fn join(&self, names: &[&str], outputs: Vec<Output>, last: bool) -> Result<Output, CallError> {
        let (kind, body) = if self.in_values || !last {
            (VALUE_TYPE, join_values(names, &outputs))
        } else {
            (JSON_TYPE, join_json(names, &outputs)?)
        };
        let headers = vec![("Content-Type".to_owned(), kind.to_owned())];
        Ok(Output { headers, body, ..Output::default() })
    }
}

fn failed(message: impl Into<String>) -> CallError {
    CallError::Model(ModelFailure::raised(message))
}

pub(super) fn plain_message(message: String) -> String {
    let told = message.strip_prefix(FAILURE_MARK).and_then(|json| {
        let failure: Vec<Value> = serde_json::from_str(json).ok()?;
        Some(failure.get(FAILURE_MESSAGE)?.as_str()?.to_owned())
    });
    told.unwrap_or(message)
}

/// A list, or a dictionary, of values, as `protocol/handles.md` has them.
pub(super) fn join_values(names: &[&str], outputs: &[Output]) -> Bytes {
    let mut joined = BytesMut::new();
    joined.put_u8(if names.is_empty() { b'l' } else { b'd' });
    joined.put_u32_le(outputs.len() as u32);
    for (at, output) in outputs.iter().enumerate() {
        if let Some(name) = names.get(at) {
            joined.put_u8(b's');
            joined.put_u32_le(name.len() as u32);
            joined.put_slice(name.as_bytes());
        }
        joined.put_slice(&output.body);
    }
    joined.freeze()
}

/// The same for clients of HTTP: a text becomes a string, and bytes cannot be joined.
pub(super) fn join_json(names: &[&str], outputs: &[Output]) -> Result<Bytes, CallError> {
    let mut joined = String::from(if names.is_empty() { "[" } else { "{" });
    for (at, output) in outputs.iter().enumerate() {
        if at > 0 {
            joined.push(',');
        }
        if let Some(name) = names.get(at) {
            joined += &Value::from(*name).to_string();
            joined.push(':');
        }
        joined += &as_json(output)
            .ok_or_else(|| failed("a part answers with bytes, which no list can hold"))?;
    }
    joined.push(if names.is_empty() { ']' } else { '}' });
    Ok(joined.into())
}

fn as_json(output: &Output) -> Option<String> {
    let is_type = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-type");
    let (_, kind) = output.headers.iter().find(is_type)?;
    let text = std::str::from_utf8(&output.body).ok()?;
    match kind {
        kind if kind.starts_with(JSON_TYPE) => Some(text.to_owned()),
        kind if kind.starts_with("text/") => Some(Value::from(text).to_string()),
        _ => None,
    }
}
