//! What an archive says about itself, as a description of the model repeats it.
//!
//! TorchServe's numbers for what is left out: no limit is 0, and a model that keeps sequences has room
//! for one of them.

use std::time::Duration;

use crate::settings::Declared;
use crate::store::{ModelYaml, ParallelType};

/// The archive's own words; what is known of devices comes later.
pub(super) fn declared(yaml: &ModelYaml) -> Declared {
    let millis = |duration: Option<Duration>| duration.map_or(0, |it| it.as_millis() as u64);
    let stateful = yaml.sequence_batching.unwrap_or(false);
    Declared {
        parallel_type: yaml.parallel_type.map_or("", parallel_type).to_owned(),
        parallel_level: yaml.parallel_level.unwrap_or(0),
        gpu: false,
        device_ids: None,
        continuous_batching: yaml.continuous_batching.unwrap_or(false),
        use_venv: yaml.use_venv.unwrap_or(false),
        stateful,
        sequence_max_idle_ms: millis(yaml.sequence_max_idle),
        sequence_timeout_ms: millis(yaml.sequence_timeout),
        max_num_sequence: yaml.max_num_sequence.map_or(u64::from(stateful), u64::from),
        max_sequence_job_queue_size: yaml
            .max_sequence_job_queue_size
            .map_or(u64::from(stateful), u64::from),
    }
}

fn parallel_type(parallel: ParallelType) -> &'static str {
    match parallel {
        ParallelType::Pipeline => "pp",
        ParallelType::Tensor => "tp",
        ParallelType::PipelineTensor => "pptp",
        ParallelType::Custom => "custom",
    }
}
