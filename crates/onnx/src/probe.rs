//! Tries a model at load on zeros of one item and of two: what an engine cannot do shows before the first
//! request, and a model whose outputs do not follow the batch, whatever the file declares, is not batched.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::engine::GraphEngine;
use super::tensor::Tensor;
use jitney_engine::local::{Dim, Signature, TensorSpec};
use jitney_engine::outcome::ModelFailure;

/// The most elements of an input that are made up.
const SAMPLE_ELEMENTS_MAX: usize = 1 << 20;

/// The length of a sample that may have any.
pub(super) const SAMPLE_LENGTH: usize = 32;

/// Zeros for so many items, where every dimension has a size but the batch and the one that is padded.
pub(super) fn zeros(
    signature: &Signature,
    padded: Option<&str>,
    items: usize,
) -> Option<Vec<Tensor>> {
    let zero = |spec: &TensorSpec| {
        let sizes = spec.shape.as_ref()?.iter().enumerate().map(|(place, dim)| match dim {
            Dim::Fixed(size) => Some(*size),
            Dim::Open(_) if place == 0 => Some(items),
            Dim::Open(name) => (padded == Some(name)).then_some(SAMPLE_LENGTH),
        });
        let shape = sizes.collect::<Option<Vec<usize>>>()?;
        let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size))?;
        (count <= SAMPLE_ELEMENTS_MAX * items)
            .then(|| Tensor::zeros(spec.datatype, shape))
            .flatten()
    };
    signature.inputs.iter().map(zero).collect()
}

/// The signature as the model keeps to it; a sentence when the built-in engine cannot run it at all.
pub(super) fn probed(
    engine: &GraphEngine,
    mut signature: Signature,
    padded: Option<&str>,
) -> Result<Signature, String> {
    let run = |items| {
        let tensors = zeros(&signature, padded, items)?;
        let ran =
            catch_unwind(AssertUnwindSafe(|| engine.in_worker(1, |worker| worker.run(&tensors))));
        Some(ran.unwrap_or_else(|_| Err(ModelFailure::raised("the engine panicked on it"))))
    };
    let Some(one) = run(1) else { return Ok(signature) };
    if let (GraphEngine::Builtin(_, remedy), Err(reason)) = (engine, &one) {
        return Err(GraphEngine::beyond_builtin(&reason.message, remedy));
    }
    let (true, Ok(one)) = (signature.batches(), one) else { return Ok(signature) };
    match run(2) {
        Some(Ok(two)) => {
            let outputs = signature.outputs.iter_mut().zip(one.iter().zip(&two));
            for (spec, (one, two)) in outputs {
                // A file may leave the type unsaid.
                spec.datatype = one.datatype();
                let rows = (one.shape().first(), two.shape().first());
                if rows != (Some(&1), Some(&2)) {
                    unbatched(spec, two.shape().len());
                }
            }
        }
        // It was exported for one item only.
        Some(Err(_)) => {
            for shape in signature.inputs.iter_mut().filter_map(|spec| spec.shape.as_mut()) {
                shape[0] = Dim::Fixed(1);
            }
        }
        None => {}
    }
    Ok(signature)
}

/// Says of an output that its first dimension is not the batch.
fn unbatched(spec: &mut TensorSpec, rank: usize) {
    let open = || Dim::Open(String::new());
    let shape = spec.shape.get_or_insert_with(|| (0..rank).map(|_| open()).collect());
    if let Some(first) = shape.first_mut() {
        *first = open();
    }
}
