//! What an archive says about itself, as a description of the model repeats it.
//!
//! TorchServe's numbers for what is left out: no limit is 0, and a model that keeps sequences has room
//! for one of them.

use std::time::Duration;

use crate::settings::Declared;
use crate::store::{ModelYaml, ParallelType};

/// The archive's own words; what is known of devices comes later. Settings that count only together
/// are repeated only together: a parallel type with a level, and what sequences are allowed with how
/// long they may be silent.
pub(super) fn declared(yaml: &ModelYaml) -> Declared {
    let millis = |duration: Option<Duration>| duration.map_or(0, |it| it.as_millis() as u64);
    let parallel = yaml.parallel_type.zip(yaml.parallel_level.filter(|level| *level > 0));
    let base = Declared {
        parallel_type: parallel.map_or("", |(kind, _)| parallel_type(kind)).to_owned(),
        parallel_level: parallel.map_or(0, |(_, level)| level),
        continuous_batching: yaml.continuous_batching.unwrap_or(false),
        use_venv: yaml.use_venv.unwrap_or(false),
        stateful: yaml.sequence_batching.unwrap_or(false),
        ..Declared::default()
    };
    if millis(yaml.sequence_max_idle) == 0 {
        return base;
    }
    Declared {
        sequence_max_idle_ms: millis(yaml.sequence_max_idle),
        sequence_timeout_ms: millis(yaml.sequence_timeout),
        max_num_sequence: yaml.max_num_sequence.unwrap_or(1).into(),
        max_sequence_job_queue_size: yaml.max_sequence_job_queue_size.unwrap_or(1).into(),
        ..base
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
