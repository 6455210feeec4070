//! Joins the members of a batch along the first dimension, runs the model once, takes the outputs apart
//! again and answers. A member is a request, or those of its parts that follow each other. No client may
//! get the rows of another: an output whose first dimension is not the sum of the items fails the batch,
//! and so do members of different shapes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::answer::{self, ServedName};
use super::engine::EngineWorker;
use super::model::OnnxModel;
use super::padding::{self, PaddingRule};
use super::request::{self, DecodedRequest, TensorInput};
use super::tensor::{self, Tensor};
use bytes::BytesMut;
use jitney_engine::call::{DecodedInput, Output};
use jitney_engine::local::{Signature, TensorSpec};
use jitney_engine::outcome::{BatchOutcome, Cause, ItemOutcome, ModelFailure};

/// Items of one request that follow each other in a batch.
#[derive(Debug)]
pub(super) struct BatchMember<'a> {
    pub request: &'a DecodedRequest,
    pub rows: Range<usize>,
    /// The inputs that they came in, by their position in the batch.
    pub inputs: Range<usize>,
}

impl BatchMember<'_> {
    /// Whether all items of the request are here.
    pub(super) fn is_whole(&self) -> bool {
        self.rows == (0..self.request.items as usize)
    }
}

/// The members of a batch: parts that follow each other are joined again.
pub(super) fn members<'a>(inputs: &[&'a TensorInput]) -> Vec<BatchMember<'a>> {
    let mut members: Vec<BatchMember<'a>> = Vec::with_capacity(inputs.len());
    for (position, input) in inputs.iter().enumerate() {
        let (request, rows) = (&*input.shared, input.rows());
        match members.last_mut() {
            Some(member)
                if input.part.is_some()
                    && std::ptr::eq(member.request, request)
                    && member.rows.end == rows.start =>
            {
                (member.rows.end, member.inputs.end) = (rows.end, position + 1);
            }
            _ => members.push(BatchMember { request, rows, inputs: position..position + 1 }),
        }
    }
    members
}

/// Runs a batch and writes every answer.
pub(super) fn run(
    model: &OnnxModel,
    served: &ServedName,
    inputs: &[Arc<dyn DecodedInput>],
    worker: &mut EngineWorker<'_>,
) -> BatchOutcome {
    let tensors = inputs.iter().map(|input| request::tensors_of(&**input));
    match tensors.collect::<Option<Vec<&TensorInput>>>() {
        Some(tensors) => run_tensors(model, served, &tensors, worker),
        None => {
            BatchOutcome::Failed(ModelFailure::raised("a request was decoded for another model"))
        }
    }
}

/// The same for requests that are known to be tensors, or raw bodies that become tensors here.
pub(super) fn run_tensors(
    model: &OnnxModel,
    served: &ServedName,
    inputs: &[&TensorInput],
    worker: &mut EngineWorker<'_>,
) -> BatchOutcome {
    if inputs.iter().all(|input| input.shared.raw.is_none()) {
        return run_prepared(model, served, inputs, worker);
    }
    let prepared = prepared(model, inputs);
    let sound: Vec<&TensorInput> = prepared.iter().flatten().map(AsRef::as_ref).collect();
    let ran = match sound.is_empty() {
        true => BatchOutcome::Items(Vec::new()),
        false => run_prepared(model, served, &sound, worker),
    };
    match ran {
        BatchOutcome::Failed(failure) => BatchOutcome::Failed(failure),
        BatchOutcome::Items(items) => {
            let mut items = items.into_iter();
            let missing = || ModelFailure::raised("the model gave too few answers");
            let outcome = |prepared: Result<_, ModelFailure>| {
                prepared.and_then(|_| items.next().unwrap_or_else(|| Err(missing())))
            };
            BatchOutcome::Items(prepared.into_iter().map(outcome).collect())
        }
    }
}

/// Raw bodies made into tensors. One that is bad fails alone.
fn prepared<'a>(
    model: &OnnxModel,
    inputs: &[&'a TensorInput],
) -> Vec<Result<Cow<'a, TensorInput>, ModelFailure>> {
    let bodies: Vec<_> = inputs.iter().filter_map(|input| input.shared.raw.as_deref()).collect();
    let preparation = model.preparation.as_ref();
    let tensors = preparation.map(|preparation| preparation.prepare(&bodies));
    let mut tensors = tensors.into_iter().flatten();
    let prepare = |input: &'a TensorInput| {
        if input.shared.raw.is_none() {
            return Ok(Cow::Borrowed(input));
        }
        match tensors.next().unwrap_or_else(|| Err("the body was not prepared".to_owned())) {
            Ok(tensors) => Ok(Cow::Owned(input.shared.prepared(tensors).into())),
            Err(message) => Err(ModelFailure::unfit(message)),
        }
    };
    inputs.iter().copied().map(prepare).collect()
}

fn run_prepared(
    model: &OnnxModel,
    served: &ServedName,
    tensors: &[&TensorInput],
    worker: &mut EngineWorker<'_>,
) -> BatchOutcome {
    let members = members(tensors);
    match outputs(model, &members, worker) {
        Err(failure) => BatchOutcome::Failed(failure),
        Ok(outputs) => {
            let mut items = Vec::with_capacity(tensors.len());
            for (member, outputs) in members.iter().zip(outputs) {
                // Of several parts only the last one brings the answer.
                items.extend((1..member.inputs.len()).map(|_| Ok(Output::default())));
                let parts = &tensors[member.inputs.clone()];
                items.push(outcome(model, served, member, parts, outputs));
            }
            BatchOutcome::Items(items)
        }
    }
}

/// The answer to a request all of whose items have their outputs; otherwise an empty one.
fn outcome(
    model: &OnnxModel,
    served: &ServedName,
    member: &BatchMember<'_>,
    parts: &[&TensorInput],
    mut outputs: Vec<Tensor>,
) -> ItemOutcome {
    if !member.is_whole() {
        match request::gathered(parts, &outputs)? {
            Some(all) => outputs = all,
            None => return Ok(Output::default()),
        }
    }
    answer::answer(model, served, member.request, &outputs)
}

/// The outputs of each member, in order. Models that do not batch run once per request, and so do
/// requests that became tensors of different shapes here.
fn outputs(
    model: &OnnxModel,
    members: &[BatchMember<'_>],
    worker: &mut EngineWorker<'_>,
) -> Result<Vec<Vec<Tensor>>, ModelFailure> {
    if !model.signature.batches() {
        let alone = |member: &BatchMember<'_>| worker.run(&member.request.tensors);
        return members.iter().map(alone).collect();
    }
    let mut answers = Vec::with_capacity(members.len());
    for together in members.chunk_by(|left, right| model.joins(left.request, right.request)) {
        let inputs = joined(model, together, worker)?;
        let outputs = worker.run(&inputs);
        worker.give_back(inputs);
        answers.extend(apart(model, together, &outputs?)?);
    }
    Ok(answers)
}

/// One tensor per input of the model, over all members.
fn joined<'a>(
    model: &OnnxModel,
    members: &[BatchMember<'a>],
    worker: &mut EngineWorker<'_>,
) -> Result<Vec<Tensor>, ModelFailure> {
    let column = |(input, spec): (usize, &TensorSpec)| {
        let tensor = |member: &BatchMember<'a>| {
            Some((member.request.tensors.get(input)?, member.rows.clone()))
        };
        let tensors: Option<Vec<_>> = members.iter().map(tensor).collect();
        let room = if members.len() > 1 { worker.room() } else { BytesMut::new() };
        let joined = tensors.and_then(|tensors| match model.card.padding.as_ref() {
            Some(pads) => padding::join(pads, spec, &tensors, room),
            None => tensor::concat(&tensors, room),
        });
        joined.ok_or_else(|| ModelFailure::raised("requests of different shapes met"))
    };
    model.signature.inputs.iter().enumerate().map(column).collect()
}

/// Each member's share of every output, in the memory of the whole. All of it is one member's if that
/// is alone.
fn apart(
    model: &OnnxModel,
    members: &[BatchMember<'_>],
    outputs: &[Tensor],
) -> Result<Vec<Vec<Tensor>>, ModelFailure> {
    let items: Vec<usize> = members.iter().map(|member| member.rows.len()).collect();
    let mut answers: Vec<Vec<Tensor>> = members.iter().map(|_| Vec::new()).collect();
    for (output, spec) in outputs.iter().zip(&model.signature.outputs) {
        let Some(shares) = output.split(&items) else {
            let total: usize = items.iter().sum();
            return Err(wrong_length(spec, output, format_args!("a batch of {total} items")));
        };
        answers.iter_mut().zip(shares).for_each(|(answer, share)| answer.push(share));
    }
    if let Some(pads) = &model.card.padding {
        cut_back(&model.signature, pads, members, &mut answers)?;
    }
    Ok(answers)
}

/// Gives every member outputs of its own length.
fn cut_back(
    signature: &Signature,
    pads: &PaddingRule,
    members: &[BatchMember<'_>],
    answers: &mut [Vec<Tensor>],
) -> Result<(), ModelFailure> {
    let length = |member: &BatchMember<'_>| pads.length(signature, &member.request.tensors);
    let longest = members.iter().map(length).max().unwrap_or(0);
    for (member, answer) in members.iter().zip(answers) {
        for (tensor, spec) in answer.iter_mut().zip(&signature.outputs) {
            if !padding::cut(pads, spec, tensor, (length(member), longest)) {
                return Err(wrong_length(spec, tensor, format_args!("items of length {longest}")));
            }
        }
    }
    Ok(())
}

fn wrong_length(spec: &TensorSpec, output: &Tensor, of: fmt::Arguments<'_>) -> ModelFailure {
    let message = format!("output {:?} has shape {:?} for {of}", spec.name, output.shape());
    ModelFailure::new(Cause::WrongLength, message)
}
