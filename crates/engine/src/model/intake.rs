//! The line past which everything is valid: turns a door's input into what the workers understand.
//!
//! It runs on the caller's task, before the queue, so that a request that does not fit the model
//! is refused alone and cannot spoil a batch.

use std::sync::Arc;

use crate::call::{Input, Parameter, Payload};
use crate::error::CallError;
use crate::onnx::OnnxModel;

/// Requests that must ride alone meet nobody in a lane of their own.
pub(super) const ALONE_BUCKET: u16 = u16::MAX;

/// Parameters of one request that a frame has room for.
const PARAMETERS_MAX: usize = u8::MAX as usize;

/// How a model takes its inputs in.
pub(crate) enum Intake {
    /// Python handlers decode for themselves.
    Python,
    /// Tensors are decoded and checked here.
    Onnx(Arc<OnnxModel>),
}

/// An input that fits.
pub(crate) struct Accepted {
    pub(crate) payload: Payload,
    pub(crate) items: u32,
    pub(crate) bucket: u16,
}

impl Intake {
    pub(crate) fn accept(
        &self,
        input: Input,
        alone: bool,
        batch_size: u32,
    ) -> Result<Accepted, CallError> {
        match self {
            Self::Python => Self::accept_raw(input, alone, batch_size),
            Self::Onnx(model) => {
                let accepted =
                    model.accept(input).map_err(|bad| CallError::BadInput(bad.to_string()))?;
                let payload = Payload::Tensors(accepted.tensors);
                Ok(Accepted { payload, items: accepted.items, bucket: accepted.bucket })
            }
        }
    }

    /// A raw input fits when the frame to the worker can carry it.
    fn accept_raw(input: Input, alone: bool, batch_size: u32) -> Result<Accepted, CallError> {
        let too_long = |parameter: &Parameter| {
            parameter.name.len().max(parameter.content_type.len()) > usize::from(u16::MAX)
        };
        if input.parameters.len() > PARAMETERS_MAX || input.parameters.iter().any(too_long) {
            return Err(CallError::BadInput(format!(
                "a request may have at most {PARAMETERS_MAX} parameters with names of at most {} bytes",
                u16::MAX
            )));
        }
        let (items, bucket) = if alone { (batch_size, ALONE_BUCKET) } else { (1, 0) };
        Ok(Accepted { payload: Payload::Raw(input), items, bucket })
    }
}
