//! Which GPU a worker gets: the one that was chosen for it by its memory, else its GPUs by TorchServe's rule: in turn over
//! all models, or in turn over the ids that the model itself names. One of several processes gets as many as it has
//! processes, the next ones in a row, and keeps them when it is started again. These are only numbers; the command line
//! has found out which devices exist.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jitney_settings::Values;
use jitney_settings::model::{DEVICE_IDS, DEVICE_TYPE, PARALLEL_LEVEL, PARALLEL_TYPE};

/// The GPUs of one model's workers.
pub(crate) struct GpuAssignment {
    /// How many there are for this model.
    count: u32,
    /// The ids that the model names.
    ids: Option<Vec<u32>>,
    /// How many a worker gets, if it is to have more than one.
    span: Option<u32>,
    /// Whose turn it is: of all models together, or of this one if it names ids or takes several.
    turn: Arc<AtomicU32>,
    assigned: Mutex<BTreeMap<u32, Vec<u32>>>,
}

impl GpuAssignment {
    /// Out of so many; none where the model's workers run on the processor. `turn` is shared by all models.
    pub(crate) fn of(count: u32, settings: &Values, turn: &Arc<AtomicU32>) -> Option<Self> {
        if count == 0 || settings.show(&DEVICE_TYPE).as_deref() == Some("cpu") {
            return None;
        }
        let ids = settings.read(&DEVICE_IDS).filter(|ids: &Vec<u32>| is_usable(ids, count));
        let span = settings.read(&PARALLEL_LEVEL);
        let span = span.filter(|level| settings.has(&PARALLEL_TYPE) && *level > 1);
        let own = ids.is_some() || span.is_some();
        let turn = if own { Arc::default() } else { Arc::clone(turn) };
        Some(Self { count, ids, span, turn, assigned: Mutex::default() })
    }

    /// What a description shows: which GPUs the model named.
    pub(crate) fn named(&self) -> Option<Vec<i64>> {
        self.ids.as_ref().map(|ids| ids.iter().map(|id| i64::from(*id)).collect())
    }

    /// The GPUs of which a worker gets one; none where it gets several.
    pub(crate) fn each(&self) -> Vec<u32> {
        match (&self.ids, self.span) {
            (_, Some(_)) => Vec::new(),
            (Some(ids), None) => ids.clone(),
            (None, None) => (0..self.count).collect(),
        }
    }

    /// The worker gets this one.
    pub(crate) fn give(&self, worker: u32, gpu: u32) {
        self.assigned().insert(worker, vec![gpu]);
    }

    /// The worker's GPUs, chosen when it is asked for the first time.
    pub(crate) fn assign(&self, worker: u32) -> Vec<u32> {
        self.assigned().entry(worker).or_insert_with(|| self.next()).clone()
    }

    /// The worker's first GPU, if it has one.
    pub(crate) fn first(&self, worker: u32) -> Option<u32> {
        self.assigned().get(&worker).and_then(|gpus| gpus.first().copied())
    }

    /// The worker is gone for good.
    pub(crate) fn release(&self, worker: u32) {
        self.assigned().remove(&worker);
    }

    /// The first worker of all gets GPU 1 where there are several, as in TorchServe.
    fn next(&self) -> Vec<u32> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        match (&self.ids, self.span) {
            (Some(ids), None) => vec![ids[turn as usize % ids.len()]],
            (None, None) => vec![turn.wrapping_add(1) % self.count],
            (Some(ids), Some(span)) => row(ids, turn, span),
            (None, Some(span)) => row(&(0..self.count).collect::<Vec<_>>(), turn, span),
        }
    }

    fn assigned(&self) -> MutexGuard<'_, BTreeMap<u32, Vec<u32>>> {
        self.assigned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `span` GPUs in a row, after those of earlier turns; never the same one twice.
fn row(gpus: &[u32], turn: u32, span: u32) -> Vec<u32> {
    let (turn, span) = (turn as usize, span as usize);
    gpus.iter().cycle().skip(turn * span % gpus.len()).take(span.min(gpus.len())).copied().collect()
}

/// One id out of range spoils the list.
fn is_usable(ids: &[u32], count: u32) -> bool {
    !ids.is_empty() && ids.iter().all(|id| *id < count)
}

#[cfg(test)]
mod tests {
    use jitney_settings::{SettingSource, from_archive};
    use serde_json::{Value, json};

    use super::*;

    fn settings(yaml: Value) -> Values {
        from_archive(yaml.as_object().unwrap(), &SettingSource::Default).0
    }

    fn assignment(count: u32, settings: &Values, turn: &Arc<AtomicU32>) -> GpuAssignment {
        GpuAssignment::of(count, settings, turn).expect("it has GPUs")
    }

    #[test]
    fn models_take_turns_and_a_worker_keeps_its_gpu() {
        let turn = Arc::default();
        let (one, other) =
            (assignment(3, &Values::default(), &turn), assignment(3, &Values::default(), &turn));
        assert_eq!([one.assign(9000), other.assign(9001), one.assign(9002)], [[1], [2], [0]]);
        assert_eq!([one.assign(9000), other.assign(9003)], [[1], [1]]);
        one.release(9000);
        assert_eq!((one.first(9000), one.first(9002)), (None, Some(0)));
    }

    #[test]
    fn a_model_may_name_its_gpus() {
        let turn = Arc::default();
        let named = assignment(4, &settings(json!({"deviceIds": [3, 1]})), &turn);
        assert_eq!([1, 2, 3].map(|worker| named.assign(worker)), [[3], [1], [3]]);
        assert_eq!(named.each(), [3, 1]);
        named.give(1, 1);
        assert_eq!((named.assign(1), named.first(1)), (vec![1], Some(1)), "it was chosen for it");
        let wrong = assignment(2, &settings(json!({"deviceIds": [0, 2]})), &turn);
        assert_eq!(wrong.assign(1), [1], "a list with an unknown id counts as none");
    }

    #[test]
    fn a_worker_of_several_processes_gets_a_row_of_gpus() {
        let four = settings(json!({"parallelType": "tp", "parallelLevel": 4}));
        let turn = Arc::default();
        let all = assignment(8, &four, &turn);
        assert_eq!(
            [1, 2, 3].map(|worker| all.assign(worker)),
            [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
        );
        assert_eq!((all.first(2), all.assign(2).len(), all.each().len()), (Some(4), 4, 0));
        let two = json!({"parallelType": "tp", "parallelLevel": 2, "deviceIds": [2, 3, 4, 5]});
        let two = settings(two);
        let named = assignment(8, &two, &turn);
        assert_eq!([1, 2].map(|worker| named.assign(worker)), [[2, 3], [4, 5]]);
        assert_eq!(assignment(3, &four, &turn).assign(1), [0, 1, 2], "there are no more");
        assert_eq!(turn.load(Ordering::Relaxed), 0, "no turn of others passed");
    }

    #[test]
    fn without_gpus_or_if_asked_workers_run_on_the_processor() {
        let turn = Arc::default();
        let none = |count, kind| {
            GpuAssignment::of(count, &settings(json!({"deviceType": kind})), &turn).is_none()
        };
        assert!(none(0, "gpu") && none(2, "CPU") && !none(2, "gpu"));
    }
}
