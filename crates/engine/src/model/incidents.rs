//! What went wrong with the workers of a model version, and the requests that made them exit.
//!
//! Incidents are counted and remembered by the task, read by descriptions and metrics. A request after which a worker
//! exited is remembered for minutes, so that repeating it costs no worker. It is known by a keyed hash of everything its
//! handler receives: the values, the endpoint, and the headers but for those that differ from try to try (ids,
//! traces, deadlines). The key never leaves this process, so no client can make another's request look like
//! its own. The task writes down who was alone with a worker that exited; the gate asks, and both look only
//! while anything is written down.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash as _, Hasher, RandomState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use bytes::BytesMut;
use tokio::time::Instant;

use crate::call::{Input, Operation};
use crate::outcome::{EXIT_KINDS, LaunchError, WorkerExit};
use crate::pending::Payload;

/// The last thing that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerIncident {
    /// What, in one line.
    pub error: String,
    /// When.
    pub at: SystemTime,
    /// How the worker's process ended, if it did by itself.
    pub exit: Option<WorkerExit>,
}

/// What went wrong so far.
#[derive(Clone, Debug, Default)]
pub struct IncidentReport {
    /// Exits of workers that had loaded, by kind.
    pub exits: [(&'static str, u64); EXIT_KINDS.len()],
    /// Times that a worker was started again.
    pub restarts: u64,
    /// Loads that failed.
    pub load_failures: u64,
    /// The last of all.
    pub last: Option<Arc<WorkerIncident>>,
    /// The last with an exit.
    pub last_exit: Option<Arc<WorkerIncident>>,
}

#[derive(Debug, Default)]
pub(crate) struct Incidents {
    exits: [AtomicU64; EXIT_KINDS.len()],
    restarts: AtomicU64,
    load_failures: AtomicU64,
    last: ArcSwapOption<WorkerIncident>,
    last_exit: ArcSwapOption<WorkerIncident>,
}

impl Incidents {
    /// A worker that had loaded has exited, and is started again.
    pub(super) fn exited(&self, exit: WorkerExit) {
        self.exits[exit.kind()].fetch_add(1, Relaxed);
        self.restarts.fetch_add(1, Relaxed);
        self.remember(exit.to_string(), Some(exit));
    }

    /// A worker could not load the model, and is perhaps started again.
    pub(super) fn load_failed(&self, error: &LaunchError, again: bool) {
        self.load_failures.fetch_add(1, Relaxed);
        self.restarts.fetch_add(again.into(), Relaxed);
        self.remember(error.to_string(), error.exit());
    }

    fn remember(&self, error: String, exit: Option<WorkerExit>) {
        let incident = Arc::new(WorkerIncident { error, at: SystemTime::now(), exit });
        if exit.is_some() {
            self.last_exit.store(Some(Arc::clone(&incident)));
        }
        self.last.store(Some(incident));
    }

    pub(super) fn report(&self) -> IncidentReport {
        let exits = |kind: usize| (EXIT_KINDS[kind], self.exits[kind].load(Relaxed));
        IncidentReport {
            exits: std::array::from_fn(exits),
            restarts: self.restarts.load(Relaxed),
            load_failures: self.load_failures.load(Relaxed),
            last: self.last.load_full(),
            last_exit: self.last_exit.load_full(),
        }
    }
}

/// How long a request is remembered after its last exit.
pub const POISON_MEMORY: Duration = Duration::from_secs(600);
/// Requests that are remembered; of more the oldest is forgotten.
const SUSPECTS_MAX: usize = 1024;
/// Exits after which a request is rejected.
const EXITS_MAX: u8 = 2;
/// The same where something else may have killed the worker: the kernel when memory runs out, an operator.
const KILLS_MAX: u8 = 4;

/// Headers that are new with every try, whatever is asked.
const CHANGING_HEADERS: [&str; 14] = [
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "traceparent",
    "tracestate",
    "baggage",
    "b3",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "uber-trace-id",
    "grpc-trace-bin",
    "grpc-timeout",
    "x-jitney-timeout-ms",
    "date",
];
const CHANGING_PREFIX: &[u8] = b"x-b3-";

#[derive(Debug)]
struct Suspect {
    /// Workers that exited while they had this request and no other.
    exits: u8,
    rejected: bool,
    until: Instant,
}

/// The suspects of one model version.
#[derive(Debug, Default)]
pub(crate) struct PoisonList {
    /// Whether there are any.
    active: AtomicBool,
    key: RandomState,
    suspects: Mutex<HashMap<u64, Suspect>>,
}

impl PoisonList {
    /// Whether this request is known to make workers exit.
    pub(super) fn rejects(&self, payload: &Payload) -> bool {
        self.active.load(Relaxed) && self.find(payload)
    }

    #[cold]
    fn find(&self, payload: &Payload) -> bool {
        let hash = self.hash(payload);
        let (mut suspects, now) = (self.lock(), Instant::now());
        suspects.retain(|_, suspect| suspect.until > now);
        self.active.store(!suspects.is_empty(), Relaxed);
        suspects.get(&hash).is_some_and(|suspect| suspect.rejected)
    }

    /// A worker exited that had only this request, which was tried for the `attempt`th time. True when it is rejected
    /// from now on.
    pub(super) fn blame(&self, payload: &Payload, attempt: u8, exit: WorkerExit) -> bool {
        let hash = self.hash(payload);
        let (mut suspects, now) = (self.lock(), Instant::now());
        suspects.retain(|_, suspect| suspect.until > now);
        if suspects.len() >= SUSPECTS_MAX && !suspects.contains_key(&hash) {
            let oldest = suspects.iter().min_by_key(|(_, suspect)| suspect.until);
            if let Some(oldest) = oldest.map(|(hash, _)| *hash) {
                suspects.remove(&oldest);
            }
        }
        let until = now + POISON_MEMORY;
        let suspect = suspects.entry(hash).or_insert(Suspect { exits: 0, rejected: false, until });
        // Of a second try the first one, among others, ended like this too.
        suspect.exits = suspect.exits.saturating_add(1).max(attempt);
        suspect.until = until;
        let most = if exit.is_from_outside() { KILLS_MAX } else { EXITS_MAX };
        suspect.rejected |= suspect.exits >= most;
        self.active.store(true, Relaxed);
        suspect.rejected
    }

    /// This request was answered after all.
    pub(super) fn acquit(&self, payload: &Payload) {
        if self.active.load(Relaxed) {
            let hash = self.hash(payload);
            self.lock().remove(&hash);
        }
    }

    fn hash(&self, payload: &Payload) -> u64 {
        let mut hasher = self.key.build_hasher();
        match payload {
            Payload::Raw(input) => hash_input(input, &mut hasher),
            // What a worker makes of it depends on nothing but its data.
            Payload::Decoded(input, ..) => {
                let mut data = BytesMut::new();
                input.put_identity(&mut data);
                (input.items(), &data[..]).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Suspect>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every value is hashed with its length, so that none can be moved into its neighbour.
fn hash_input(input: &Input, hasher: &mut impl Hasher) {
    let Input { route, headers, parameters, tensors, .. } = input;
    let operation: u8 = match route.operation {
        Operation::Predict => 0,
        Operation::Explain => 1,
        Operation::Describe => 2,
    };
    (operation, route.open_inference, &route.endpoint).hash(hasher);
    route.sequence.as_ref().map(|sequence| (&sequence.id, sequence.starts)).hash(hasher);
    for (name, value) in headers.iter().filter(|(name, _)| !changes(name)) {
        name.hash(hasher);
        // Without its parameters: the boundary of a form is new every time.
        let is_type = name.eq_ignore_ascii_case(b"content-type");
        let end = value.iter().position(|byte| is_type && *byte == b';').unwrap_or(value.len());
        value[..end].hash(hasher);
    }
    for parameter in parameters {
        (&*parameter.name, &*parameter.content_type, &parameter.value).hash(hasher);
    }
    tensors.hash(hasher);
}

fn changes(name: &[u8]) -> bool {
    let begins = name.get(..CHANGING_PREFIX.len());
    begins.is_some_and(|begins| begins.eq_ignore_ascii_case(CHANGING_PREFIX))
        || CHANGING_HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

#[cfg(test)]
mod poison_tests {
    use std::sync::Arc;

    use super::*;
    use crate::tensors::{Datatype, NamedTensor, TensorRequest};
    use crate::testkit::call;

    const CRASH: WorkerExit = WorkerExit::Ended { status: Some(3), signal: None };
    const KILL: WorkerExit = WorkerExit::Ended { status: None, signal: Some(9) };

    fn payload(body: &str, headers: &[(&str, &str)]) -> Payload {
        let mut input = call(body).input;
        for (name, value) in headers {
            input.headers.push(name, value.as_bytes());
        }
        Payload::Raw(input)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_ended_two_workers_is_rejected_for_a_while() {
        let list = PoisonList::default();
        let deadly = payload("deadly", &[]);
        assert!(!list.rejects(&deadly));
        assert!(!list.blame(&deadly, 1, CRASH));
        assert!(!list.rejects(&deadly), "one may be an accident");
        assert!(list.blame(&deadly, 2, CRASH));
        assert!(list.rejects(&deadly) && !list.rejects(&payload("harmless", &[])));
        tokio::time::advance(POISON_MEMORY).await;
        assert!(!list.rejects(&deadly));
        assert!(!list.active.load(Relaxed), "nothing is hashed any more");
        assert!(list.blame(&deadly, 2, CRASH), "its first try was among others");
    }

    #[tokio::test(start_paused = true)]
    async fn what_something_else_may_have_done_needs_more_proof() {
        let list = PoisonList::default();
        let large = payload("large", &[]);
        let blamed = [(1, KILL), (2, KILL), (1, KILL), (2, KILL)];
        let rejected = blamed.map(|(attempt, exit)| list.blame(&large, attempt, exit));
        assert_eq!(rejected, [false, false, false, true]);
        list.acquit(&large);
        assert!(!list.rejects(&large), "it was answered");
    }

    #[tokio::test(start_paused = true)]
    async fn ids_and_traces_make_no_difference_and_everything_else_does() {
        let list = PoisonList::default();
        let kind = ("content-type", "multipart/form-data; boundary=1");
        let trace = ("traceparent", "00-1");
        list.blame(
            &payload("deadly", &[("x-a", "1"), kind, trace, ("X-B3-TraceId", "7")]),
            2,
            CRASH,
        );
        let again = ("Content-Type", "multipart/form-data; boundary=2");
        let same = [("content-type", again.1), ("TraceParent", "00-2"), ("x-request-id", "9")];
        let rejects = |body, headers: &[(&str, &str)]| {
            list.rejects(&payload(body, &[&[("x-a", "1")], headers].concat()))
        };
        assert!(rejects("deadly", &same));
        assert!(!rejects("deadly", &[("content-type", "text/plain")]));
        assert!(!rejects("deadly", &[kind, ("x-b", "")]));
        assert!(!rejects("deadl", &same));
    }

    #[tokio::test(start_paused = true)]
    async fn tensors_are_what_a_request_brings() {
        let payload = |shape: &[usize], outputs: &[&str]| {
            let data = bytes::Bytes::from_static(&[1, 2, 3, 4]);
            let inputs = vec![NamedTensor::new("x", Datatype::Uint8, shape, data).expect("fits")];
            let outputs = outputs.iter().map(|name| (*name).into()).collect();
            let mut input = call("").input;
            input.tensors = Some(Arc::new(TensorRequest { inputs, outputs }));
            Payload::Raw(input)
        };
        let list = PoisonList::default();
        list.blame(&payload(&[2, 2], &[]), 2, CRASH);
        assert!(list.rejects(&payload(&[2, 2], &[])));
        assert!(!list.rejects(&payload(&[4], &[])) && !list.rejects(&payload(&[2, 2], &["y"])));
    }

    #[tokio::test(start_paused = true)]
    async fn the_list_is_bounded() {
        let list = PoisonList::default();
        for number in 0..=SUSPECTS_MAX {
            tokio::time::advance(Duration::from_millis(1)).await;
            list.blame(&payload(&number.to_string(), &[]), 2, CRASH);
        }
        assert_eq!(list.lock().len(), SUSPECTS_MAX);
        assert!(!list.rejects(&payload("0", &[])), "the oldest is forgotten");
        assert!(list.rejects(&payload("1", &[])));
    }
}
