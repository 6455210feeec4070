//! `dynamic_batching` of a Triton configuration: how long requests wait for each other, and what else is said of those
//! that wait.

use std::time::Duration;

use jitney_settings::model::MAX_BATCH_DELAY;
use jitney_settings::{SettingSource, Values};

use super::fields::unknown;
use super::queue_policy;
use super::text_format::{ConfigError, PbField};

/// A delay that is given is a window; without one requests meet as the policy `adaptive` finds best.
pub(super) fn read(
    field: &PbField,
    settings: &mut Values,
    source: &SettingSource,
) -> Result<Vec<String>, ConfigError> {
    let mut remarks = Vec::new();
    for inner in field.message()? {
        match inner.name.as_str() {
            "max_queue_delay_microseconds" => {
                let delay = Duration::from_micros(inner.number()?);
                if !delay.is_zero() {
                    settings.set(&MAX_BATCH_DELAY, delay, source.clone());
                }
            }
            "default_queue_policy" => {
                remarks.extend(queue_policy::read(inner, settings, source)?);
            }
            "preferred_batch_size" => remarks.push(format!(
                "line {}: preferred_batch_size has no effect here: the server learns which sizes pay, and the setting \
                 sizes allows no others",
                inner.line
            )),
            "priority_levels" => remarks.push(format!(
                "line {}: of priority_levels there are two here: 1 is interactive, every other is bulk",
                inner.line
            )),
            "default_priority_level" if inner.number::<u32>()? <= 1 => {}
            "default_priority_level" => remarks.push(format!(
                "line {}: default_priority_level has no effect here: a request that names no priority is interactive; one \
                 with the parameter priority above 1 is bulk",
                inner.line
            )),
            "preserve_ordering" | "priority_queue_policy" => {
                remarks.push(format!("line {}: {} has no effect here", inner.line, inner.name));
            }
            _ => {
                return Err(unknown(
                    inner,
                    [
                        "max_queue_delay_microseconds",
                        "preferred_batch_size",
                        "default_queue_policy",
                    ],
                ));
            }
        }
    }
    Ok(remarks)
}
