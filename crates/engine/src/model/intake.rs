//! The line past which everything is valid: turns a door's input into what the workers understand.
//!
//! It runs on the caller's task, before the queue, so that a request that does not fit the model
//! is refused alone and cannot spoil a batch.

use std::sync::Arc;

use crate::call::{Input, Payload};
use crate::error::CallError;
use crate::onnx::OnnxModel;

/// Requests that must ride alone meet nobody in a lane of their own.
const ALONE_BUCKET: u16 = u16::MAX;

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
            Self::Python if alone => {
                let payload = Payload::Raw(input);
                Ok(Accepted { payload, items: batch_size, bucket: ALONE_BUCKET })
            }
            Self::Python => Ok(Accepted { payload: Payload::Raw(input), items: 1, bucket: 0 }),
            Self::Onnx(model) => {
                let accepted =
                    model.accept(input).map_err(|bad| CallError::BadInput(bad.to_string()))?;
                let payload = Payload::Tensors(accepted.tensors);
                Ok(Accepted { payload, items: accepted.items, bucket: accepted.bucket })
            }
        }
    }
}
