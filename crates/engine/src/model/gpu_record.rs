//! A GPU as loads find it: how much it has and holds, and whether workers may go there now.

use jitney_batcher::Nanos;

/// How long a GPU gets no workers after those there have failed.
const ASIDE: Nanos = 60_000_000_000;
/// So many in a row fail before that.
const FAILURES: usize = 2;
/// No more of them are remembered.
const REMEMBERED: usize = 8;

/// A GPU as the driver tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuReading {
    /// Its number, as workers are given it.
    pub id: u32,
    /// Bytes that are held, by whomever.
    pub used: u64,
    /// Bytes that it has; none where the driver does not tell.
    pub total: Option<u64>,
}

/// What is known of a GPU.
#[derive(Debug, Default)]
pub(super) struct GpuRecord {
    pub(super) used: u64,
    pub(super) total: Option<u64>,
    /// The driver has listed it, and does no longer.
    pub(super) gone: bool,
    /// The models of the workers that failed there since a load there succeeded, the last one last.
    failed: Vec<u64>,
    /// No worker goes there before.
    aside: Nanos,
}

impl GpuRecord {
    /// The driver lists it so; nothing where it lists others and not this one.
    pub(super) fn set_read(&mut self, id: u32, reading: Option<&GpuReading>) {
        match (reading.is_some(), self.gone) {
            (false, false) => {
                tracing::warn!(gpu = id, "GPU {id} is gone: its workers are placed elsewhere");
            }
            (true, true) => tracing::info!(gpu = id, "GPU {id} is back"),
            (true, false) | (false, true) => {}
        }
        self.gone = reading.is_none();
        if let Some(GpuReading { used, total, .. }) = reading {
            (self.used, self.total) = (*used, *total);
        }
    }

    /// Whether workers may go there now.
    pub(super) fn is_sound(&self, now: Nanos) -> bool {
        !self.gone && self.aside <= now
    }

    /// Whether a worker of this model has failed there lately.
    pub(super) fn has_failed(&self, model: u64) -> bool {
        self.failed.contains(&model)
    }

    /// A worker of a model has failed there. Where every one does it is the GPU: those of two models, or two while
    /// nothing else runs there. Says so then.
    pub(super) fn set_failed(&mut self, now: Nanos, model: u64, others: bool) -> Option<String> {
        self.failed.drain(..(self.failed.len() + 1).saturating_sub(REMEMBERED));
        self.failed.push(model);
        let count = self.failed.len();
        let models =
            (0..count).filter(|at| !self.failed[..*at].contains(&self.failed[*at])).count();
        if count < FAILURES || (models == 1 && others) || self.aside > now {
            return None;
        }
        self.aside = now + ASIDE;
        let of = if models == 1 { "one model".to_owned() } else { format!("{models} models") };
        let seconds = ASIDE / 1_000_000_000;
        Some(format!(
            "gets no workers for {seconds} s: {count} in a row, of {of}, have failed there"
        ))
    }

    /// A worker has loaded there.
    pub(super) fn set_loaded(&mut self) {
        self.failed.clear();
        self.aside = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn a_gpu_where_every_worker_fails_is_not_used_for_a_while() {
        let mut gpu = GpuRecord::default();
        assert_eq!(gpu.set_failed(0, 1, false), None);
        assert!(gpu.is_sound(0) && gpu.has_failed(1) && !gpu.has_failed(2));
        let said = gpu.set_failed(SECOND, 2, true).expect("two models");
        assert_eq!(said, "gets no workers for 60 s: 2 in a row, of 2 models, have failed there");
        assert_eq!(gpu.set_failed(SECOND, 3, true), None, "it is said once");
        assert!(!gpu.is_sound(60 * SECOND) && gpu.is_sound(61 * SECOND), "it is tried again");
        assert!(gpu.set_failed(62 * SECOND, 1, true).is_some(), "and fails again");
        gpu.set_loaded();
        assert!(gpu.is_sound(62 * SECOND) && !gpu.has_failed(1));
    }

    #[test]
    fn a_model_that_fails_beside_others_that_run_is_not_the_fault_of_the_gpu() {
        let mut gpu = GpuRecord::default();
        assert!((0..5).all(|_| gpu.set_failed(0, 1, true).is_none()));
        let said = gpu.set_failed(0, 1, false).expect("nothing else runs there");
        assert_eq!(said, "gets no workers for 60 s: 6 in a row, of one model, have failed there");
        (0..20).for_each(|model| drop(gpu.set_failed(0, model, true)));
        assert_eq!(gpu.failed.len(), REMEMBERED);
    }
}
