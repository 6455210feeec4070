//! Outputs that a request wants in memory that its client shares.

use jitney_engine::tensors::NamedTensor;

use super::request::{OpenInferenceRequest, ParameterMap};
use super::shared_location::{OFFSET, REGION, SIZE, SharedLocation};
use crate::errors::Problem;
use crate::shared_memory::{SharedMemory, SharedRange, allowed};

/// The outputs of a request that are to be written into shared memory; usually none.
#[derive(Default)]
pub(crate) struct SharedOutputs {
    outputs: Vec<SharedOutput>,
}

struct SharedOutput {
    name: String,
    range: SharedRange,
    /// What the request says, which the answer repeats.
    parameters: ParameterMap,
}

impl SharedOutputs {
    /// # Errors
    /// The memory is not there.
    pub(crate) fn of(
        request: &OpenInferenceRequest,
        memory: Option<&SharedMemory>,
    ) -> Result<Self, Problem> {
        let mut outputs = Vec::new();
        for output in &request.outputs {
            let (name, asked) = (&output.name, &output.parameters);
            let place = SharedLocation::of(asked)
                .map_err(|why| Problem::bad_request(format!("Output {name:?}: {why}.")))?;
            if let Some(SharedLocation { region, offset, size }) = place {
                let range = allowed(memory)?.range(region, offset, size)?;
                let kept = [REGION, OFFSET, SIZE].into_iter();
                let kept = kept.filter_map(|key| Some((key.to_owned(), asked.get(key)?.clone())));
                let parameters = kept.collect::<ParameterMap>();
                outputs.push(SharedOutput { name: name.clone(), range, parameters });
            }
        }
        Ok(Self { outputs })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Writes an output where the request wants it. What the answer then says about it, if it wants it there.
    ///
    /// # Errors
    /// It does not fit, or the memory is gone.
    pub(crate) fn write(&self, tensor: &NamedTensor) -> Result<Option<&ParameterMap>, Problem> {
        let Some(output) = self.outputs.iter().find(|output| output.name == tensor.name()) else {
            return Ok(None);
        };
        output.range.write(tensor.name(), tensor.data())?;
        Ok(Some(&output.parameters))
    }
}
