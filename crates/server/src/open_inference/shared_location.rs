//! Where a tensor lies in memory that a client shares, as the parameters of the tensor say it.

use serde_json::{Map, Value};

/// Names the region; an output of an answer that has it lies there.
pub(crate) const REGION: &str = "shared_memory_region";
pub(super) const OFFSET: &str = "shared_memory_offset";
pub(super) const SIZE: &str = "shared_memory_byte_size";

/// Where a tensor lies.
pub(crate) struct SharedLocation<'a> {
    pub(crate) region: &'a str,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl<'a> SharedLocation<'a> {
    /// The place that parameters name, if they name one.
    ///
    /// # Errors
    /// A sentence when they do not say enough.
    pub(crate) fn of(parameters: &'a Map<String, Value>) -> Result<Option<Self>, String> {
        let Some(region) = parameters.get(REGION) else { return Ok(None) };
        let region = region.as_str().ok_or_else(|| format!("{REGION} must be a text"))?;
        let whole = |name: &str| match parameters.get(name) {
            None => Ok(None),
            Some(value) => {
                value.as_u64().map(Some).ok_or_else(|| format!("{name} must be a whole number"))
            }
        };
        let offset = whole(OFFSET)?.unwrap_or(0);
        let size = whole(SIZE)?.ok_or_else(|| format!("{SIZE} goes with {REGION}"))?;
        Ok(Some(Self { region, offset, size }))
    }
}
