//! Which GPU a worker gets: the one that was chosen for it by its memory, else its GPUs by TorchServe's rule: in turn over
//! all models, or in turn over the ids that the model itself names. One of several processes gets as many as it has
//! processes, the next ones in a row, and keeps them when it is started again. These are only numbers; the command line
//! has found out which devices exist.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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
    shared: Arc<SharedGpus>,
    /// Whose turn it is of this model's workers, if it names ids or takes several; else all models take turns.
    own_turn: Option<AtomicU32>,
    assigned: Mutex<BTreeMap<u32, Vec<u32>>>,
}

/// What all models share of the GPUs: whose turn it is to get one, and how much was answered on each.
#[derive(Default)]
pub(crate) struct SharedGpus {
    turn: AtomicU32,
    answers: Mutex<BTreeMap<u32, Arc<AtomicU64>>>,
}

/// The items that all models have answered on a GPU.
#[derive(Debug)]
pub struct GpuAnswers {
    /// Which one.
    pub gpu: u32,
    /// How many.
    pub items: Arc<AtomicU64>,
}

impl GpuAssignment {
    /// Out of so many, which all models share; none where the model's workers run on the processor.
    pub(crate) fn of(count: u32, settings: &Values, shared: &Arc<SharedGpus>) -> Option<Self> {
        if count == 0 || settings.show(&DEVICE_TYPE).as_deref() == Some("cpu") {
            return None;
        }
        let ids = settings.read(&DEVICE_IDS).filter(|ids: &Vec<u32>| is_usable(ids, count));
        let span = settings.read(&PARALLEL_LEVEL);
        let span = span.filter(|level| settings.has(&PARALLEL_TYPE) && *level > 1);
        let own_turn = (ids.is_some() || span.is_some()).then(AtomicU32::default);
        let (shared, assigned) = (Arc::clone(shared), Mutex::default());
        Some(Self { count, ids, span, shared, own_turn, assigned })
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

    /// What all models have answered on that one.
    pub(crate) fn answers(&self, worker: u32) -> Option<GpuAnswers> {
        let gpu = self.first(worker)?;
        let mut all = self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner);
        Some(GpuAnswers { gpu, items: Arc::clone(all.entry(gpu).or_default()) })
    }

    /// The worker is gone for good.
    pub(crate) fn release(&self, worker: u32) {
        self.assigned().remove(&worker);
    }

    /// The first worker of all gets GPU 1 where there are several, as in TorchServe.
    fn next(&self) -> Vec<u32> {
        let turn = self.own_turn.as_ref().unwrap_or(&self.shared.turn);
        let turn = turn.fetch_add(1, Ordering::Relaxed);
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

    fn assignment(count: u32, settings: &Values, shared: &Arc<SharedGpus>) -> GpuAssignment {
        GpuAssignment::of(count, settings, shared).expect("it has GPUs")
    }

    #[test]
    fn models_take_turns_and_a_worker_keeps_its_gpu() {
        let shared = Arc::default();
        let (one, other) = (
            assignment(3, &Values::default(), &shared),
            assignment(3, &Values::default(), &shared),
        );
        assert_eq!([one.assign(9000), other.assign(9001), one.assign(9002)], [[1], [2], [0]]);
        assert_eq!([one.assign(9000), other.assign(9003)], [[1], [1]]);
        one.release(9000);
        assert_eq!((one.first(9000), one.first(9002)), (None, Some(0)));
        let [answers, of_other] = [one.answers(9002), other.answers(9003)];
        let (answers, of_other) = (answers.expect("it has GPU 0"), of_other.expect("a GPU"));
        assert_eq!((answers.gpu, of_other.gpu), (0, 1));
        other.give(9004, 0);
        let same = other.answers(9004).expect("it has the first one's");
        assert!(Arc::ptr_eq(&same.items, &answers.items) && one.answers(9000).is_none());
    }

    #[test]
    fn a_model_may_name_its_gpus() {
        let shared = Arc::default();
        let named = assignment(4, &settings(json!({"deviceIds": [3, 1]})), &shared);
        assert_eq!([1, 2, 3].map(|worker| named.assign(worker)), [[3], [1], [3]]);
        assert_eq!(named.each(), [3, 1]);
        named.give(1, 1);
        assert_eq!((named.assign(1), named.first(1)), (vec![1], Some(1)), "it was chosen for it");
        let wrong = assignment(2, &settings(json!({"deviceIds": [0, 2]})), &shared);
        assert_eq!(wrong.assign(1), [1], "a list with an unknown id counts as none");
    }

    #[test]
    fn a_worker_of_several_processes_gets_a_row_of_gpus() {
        let four = settings(json!({"parallelType": "tp", "parallelLevel": 4}));
        let shared = Arc::default();
        let all = assignment(8, &four, &shared);
        assert_eq!(
            [1, 2, 3].map(|worker| all.assign(worker)),
            [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]
        );
        assert_eq!((all.first(2), all.assign(2).len(), all.each().len()), (Some(4), 4, 0));
        let two = json!({"parallelType": "tp", "parallelLevel": 2, "deviceIds": [2, 3, 4, 5]});
        let two = settings(two);
        let named = assignment(8, &two, &shared);
        assert_eq!([1, 2].map(|worker| named.assign(worker)), [[2, 3], [4, 5]]);
        assert_eq!(assignment(3, &four, &shared).assign(1), [0, 1, 2], "there are no more");
        assert_eq!(shared.turn.load(Ordering::Relaxed), 0, "no turn of others passed");
    }

    #[test]
    fn without_gpus_or_if_asked_workers_run_on_the_processor() {
        let shared = Arc::default();
        let none = |count, kind| {
            GpuAssignment::of(count, &settings(json!({"deviceType": kind})), &shared).is_none()
        };
        assert!(none(0, "gpu") && none(2, "CPU") && !none(2, "gpu"));
    }
}
