//! The requests that the task of a model version owns, until each has ended exactly once.
//!
//! Those of sequences wait here for their turn, then go to their sequence's worker; `sequence` decides whose turn it
//! is, and for a model without sequences all of that does nothing. Admitted requests, waiting or with a worker, lie
//! in the table: the batcher decides with ids only, and the table holds what the ids stand for. A request
//! leaves its entry while its batch is with a worker and comes back if the batch must be tried again. An
//! entry is freed only when its request has ended, so an id never means two requests.

use std::sync::Arc;

use jitney_batcher::{RequestId, WorkerId};
use slab::Slab;
use tokio::time::Instant;

use super::scheduler::ModelClock;
use super::sequence::{KeptSequences, SequenceName, Sequences, Turn};
use crate::call::{SequenceHeaders, SequenceRef};
use crate::error::CallError;
use crate::outcome::ItemOutcome;
use crate::pending::{Payload, PendingRequest};
use crate::pool::WorkerBatch;
use crate::reply::Timing;
use crate::settings::ModelSettings;

/// Longer than any sensible id; without a bound ids could fill the memory.
const ID_BYTES_MAX: usize = 1024;

/// How ids begin that a server made.
const MADE: &str = "ts-seq-";

/// The sequences of one model version, if it keeps any.
pub(super) struct SequenceRequests {
    sequences: Option<Sequences<PendingRequest>>,
    headers: Arc<SequenceHeaders>,
    clock: ModelClock,
}

impl SequenceRequests {
    /// Those of a model with these settings; `kept` tells others of them, where it keeps any.
    pub(super) fn new(
        settings: &ModelSettings,
        kept: Option<KeptSequences>,
        clock: ModelClock,
    ) -> Self {
        let sequences = settings.sequences().zip(kept);
        let sequences = sequences.map(|(limits, kept)| Sequences::new(limits, kept));
        Self { sequences, headers: Arc::clone(&settings.sequence_headers), clock }
    }

    /// Whether the model keeps sequences.
    pub(super) fn enabled(&self) -> bool {
        self.sequences.is_some()
    }

    /// Lets a request wait for its turn in the sequence that it names, or in a new one.
    #[expect(clippy::result_large_err, reason = "a rejected request comes back whole")]
    pub(super) fn join(
        &mut self,
        mut request: PendingRequest,
    ) -> Result<(), (PendingRequest, CallError)> {
        let now = Instant::now();
        let deadline = self.deadline(&request);
        let Some(sequences) = &mut self.sequences else { return Err((request, CallError::Gone)) };
        let name = sequence_of(&mut request.payload);
        let room =
            name.and_then(|name| sequences.find_room(now, &name).map_err(CallError::Sequence));
        match room {
            Ok(key) => sequences.join(now, key, deadline, request),
            Err(error) => return Err((request, error)),
        }
        Ok(())
    }

    /// The next request whose turn it is, pinned to its sequence's worker.
    pub(super) fn next(&mut self) -> Option<(PendingRequest, TurnRef)> {
        let Turn { sequence, number, worker, anew, mut what, .. } =
            self.sequences.as_mut()?.next()?;
        if let (_, Some(named)) = what.payload.sequence() {
            named.starts |= anew;
            if named.ends {
                self.sequences.as_mut()?.end(Instant::now(), &named.id);
            }
        }
        what.facts.worker = Some(WorkerId(worker));
        Some((what, TurnRef { sequence, number }))
    }

    /// A request that had its turn has ended; its sequence goes on.
    pub(super) fn answered(&mut self, turn: Option<TurnRef>) {
        if let (Some(sequences), Some(turn)) = (&mut self.sequences, turn) {
            sequences.answered(Instant::now(), turn.sequence);
        }
    }

    /// Its worker has gone before it could be sent: it waits again, for another one.
    pub(super) fn put_back(&mut self, request: PendingRequest, turn: TurnRef) {
        let (TurnRef { sequence, number }, deadline) = (turn, self.deadline(&request));
        if let (Some(sequences), Some(worker)) = (&mut self.sequences, request.facts.worker) {
            let WorkerId(worker) = worker;
            let turn = Turn { sequence, number, worker, anew: false, deadline, what: request };
            sequences.put_back(Instant::now(), turn);
        }
    }

    pub(super) fn worker_up(&mut self, worker: u32) {
        if let Some(sequences) = &mut self.sequences {
            sequences.worker_up(worker);
        }
    }

    pub(super) fn worker_gone(&mut self, worker: u32) {
        if let Some(sequences) = &mut self.sequences {
            sequences.worker_gone(worker);
        }
    }

    /// Ends the sequences that the model's answers say are over.
    pub(super) fn end_named(&mut self, items: &[ItemOutcome]) {
        let Some(sequences) = &mut self.sequences else { return };
        let headers = items.iter().flatten().flat_map(|output| &output.headers);
        for (_, ids) in headers.filter(|(name, _)| name.eq_ignore_ascii_case(&self.headers.end)) {
            for id in ids.split(';') {
                sequences.end(Instant::now(), id.trim());
            }
        }
    }

    /// When [`SequenceRequests::expire`] has something to do, at the earliest.
    pub(super) fn alarm(&self) -> Option<Instant> {
        self.sequences.as_ref().and_then(|sequences| sequences.alarm)
    }

    /// Ends the sequences whose time is over; returns the requests whose deadline passed in one.
    pub(super) fn expire(&mut self) -> Vec<PendingRequest> {
        let now = Instant::now();
        match &mut self.sequences {
            Some(sequences) if sequences.alarm.is_some_and(|alarm| alarm <= now) => {
                sequences.expire(now)
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Takes out the requests that wait for a turn and were admitted until then.
    pub(super) fn take(&mut self, until: Instant) -> Vec<PendingRequest> {
        let Some(sequences) = &mut self.sequences else { return Vec::new() };
        sequences.take(|request| request.admitted <= until)
    }

    /// When the oldest was admitted that waits for its turn.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.sequences.as_ref()?.all_waiting().map(|request| request.admitted).min()
    }

    /// How many wait for their turn.
    pub(super) fn waiting(&self) -> u32 {
        let waiting = self.sequences.as_ref().map_or(0, |sequences| sequences.waiting);
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    fn deadline(&self, request: &PendingRequest) -> Option<Instant> {
        let deadline = request.facts.deadline;
        (deadline != u64::MAX).then(|| self.clock.instant(deadline))
    }
}

/// The sequence that a request names. One that names none begins a sequence of its own, and its
/// handler is told so.
fn sequence_of(payload: &mut Payload) -> Result<SequenceName, CallError> {
    let (id, sequence) = payload.sequence();
    if let Some(SequenceRef { id, starts, .. }) = sequence.as_deref() {
        if id.len() > ID_BYTES_MAX {
            let message = format!("a sequence id has at most {ID_BYTES_MAX} bytes");
            return Err(CallError::BadInput(message));
        }
        let made = id.starts_with(MADE);
        return Ok(SequenceName { id: id.clone(), chosen: true, starts: *starts, made });
    }
    let id = format!("{MADE}{id}");
    *sequence = Some(Box::new(SequenceRef { id: id.clone(), starts: true, ends: false }));
    Ok(SequenceName { id, chosen: false, starts: true, made: true })
}

/// Which turn of which sequence a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TurnRef {
    pub(super) sequence: usize,
    pub(super) number: u64,
}

/// A request, and what is known of it until it has ended.
#[derive(Debug, Default)]
pub(super) struct TableEntry {
    generation: u32,
    /// `None` while the request is in a batch that is with a worker.
    pub(super) request: Option<PendingRequest>,
    /// What its last try came to, told to the caller if there is no other.
    pub(super) failure: Option<Box<FailedTry>>,
    /// For models that keep sequences.
    pub(super) turn: Option<TurnRef>,
}

/// What a batch came to for one of its requests.
#[derive(Debug)]
pub(super) struct FailedTry {
    pub(super) error: CallError,
    pub(super) timing: Timing,
}

/// All requests of one model version that have not ended.
#[derive(Debug, Default)]
pub(super) struct RequestTable {
    entries: Slab<TableEntry>,
    generation: u32,
}

impl RequestTable {
    /// Takes a request in and gives it its id.
    pub(super) fn insert(
        &mut self,
        mut request: PendingRequest,
        turn: Option<TurnRef>,
    ) -> RequestId {
        self.generation = self.generation.wrapping_add(1);
        let (entry, generation) = (self.entries.vacant_entry(), self.generation);
        let id = RequestId::new(entry.key() as u32, generation);
        request.facts.id = id;
        request.id.set(id);
        entry.insert(TableEntry { generation, request: Some(request), failure: None, turn });
        id
    }

    /// Whether every request has ended.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes a request out for its batch.
    pub(super) fn take(&mut self, id: RequestId) -> Option<PendingRequest> {
        self.entry(id)?.request.take()
    }

    /// Puts the requests of a batch back, with what went wrong.
    pub(super) fn put_back(&mut self, mut batch: WorkerBatch, failure: Option<&CallError>) {
        let ran = batch.dispatched.elapsed();
        for (position, request) in std::mem::take(&mut batch.requests).into_iter().enumerate() {
            if let Some(entry) = self.entry(request.facts.id) {
                let timing = batch.timing(&request, position, ran);
                let failed = failure.map(|it| Box::new(FailedTry { error: it.clone(), timing }));
                entry.request = Some(request);
                entry.failure = failed.or(entry.failure.take());
            }
        }
    }

    /// Whether a request has not ended.
    pub(super) fn holds(&mut self, id: RequestId) -> bool {
        self.entry(id).is_some()
    }

    /// Takes the entry of a request that has ended; an empty one if it had ended before.
    pub(super) fn end(&mut self, id: RequestId) -> TableEntry {
        if self.holds(id) { self.entries.remove(id.index()) } else { TableEntry::default() }
    }

    /// The requests that wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &PendingRequest> {
        self.entries.iter().filter_map(|(_, entry)| entry.request.as_ref())
    }

    fn entry(&mut self, id: RequestId) -> Option<&mut TableEntry> {
        let entry = self.entries.get_mut(id.index())?;
        (RequestId::new(id.index() as u32, entry.generation) == id).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use jitney_batcher::Request;

    use super::*;
    use crate::pending::SharedId;
    use crate::reply::Reply;
    use crate::settings::Declared;
    use crate::testkit::{call, settings};

    fn sequences() -> SequenceRequests {
        let declared =
            Declared { stateful: true, sequence_max_idle_ms: 20_000, ..Declared::default() };
        let settings = ModelSettings { declared, ..settings() };
        SequenceRequests::new(&settings, Some(KeptSequences::default()), ModelClock::start())
    }

    fn request(sequence: Option<&str>) -> PendingRequest {
        let mut input = call("body").input;
        let named =
            |id: &str| Box::new(SequenceRef { id: id.to_owned(), ..SequenceRef::default() });
        input.route.sequence = sequence.map(named);
        let facts = Request::new(SharedId::UNSET);
        let (reply, _) = Reply::new();
        PendingRequest::new(facts, Payload::Raw(input), Instant::now(), reply, None)
    }

    fn sequence(request: &PendingRequest) -> SequenceRef {
        let route = request.payload.raw().map(|input| input.route.clone());
        *route.and_then(|route| route.sequence).expect("a sequence")
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_goes_to_its_sequences_worker_and_the_next_one_waits_for_its_end() {
        let mut sequences = sequences();
        sequences.worker_up(7);
        for _ in 0..2 {
            assert!(sequences.join(request(Some("a"))).is_ok());
        }
        let (first, turn) = sequences.next().expect("a turn");
        assert_eq!(first.facts.worker, Some(WorkerId(7)));
        assert!(sequences.next().is_none() && sequences.waiting() == 1);
        sequences.answered(Some(turn));
        assert!(sequences.next().is_some() && sequences.waiting() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_names_no_sequence_begins_its_own() {
        let mut sequences = sequences();
        sequences.worker_up(1);
        assert!(sequences.join(request(None)).is_ok());
        let (request, _) = sequences.next().expect("a turn");
        let own = SequenceRef { id: "ts-seq-body".to_owned(), starts: true, ends: false };
        assert_eq!(sequence(&request), own);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_put_back_begins_its_sequence_anew_elsewhere() {
        let mut sequences = sequences();
        sequences.worker_up(1);
        assert!(sequences.join(request(Some("a"))).is_ok());
        let (request, turn) = sequences.next().expect("a turn");
        sequences.put_back(request, turn);
        assert!(sequences.next().is_none(), "its worker is gone");
        sequences.worker_up(2);
        let (request, _) = sequences.next().expect("a turn");
        assert_eq!(request.facts.worker, Some(WorkerId(2)));
        assert!(sequence(&request).starts);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sequence_that_its_client_ends_is_over_with_that_request() {
        let mut sequences = sequences();
        sequences.worker_up(1);
        let mut last = request(Some("a"));
        if let (_, Some(named)) = last.payload.sequence() {
            named.ends = true;
        }
        assert!(sequences.join(last).is_ok());
        let (request_of_turn, turn) = sequences.next().expect("a turn");
        // Its worker goes before it is sent: it ends the sequence with the next one.
        sequences.put_back(request_of_turn, turn);
        sequences.worker_up(2);
        let (_, turn) = sequences.next().expect("a turn");
        assert!(sequences.join(request(Some("a"))).is_ok());
        assert!(sequences.next().is_none(), "another sequence of this id waits for the end");
        sequences.answered(Some(turn));
        let (next, _) = sequences.next().expect("a turn");
        assert!(!sequence(&next).starts, "nothing was lost");
    }

    #[tokio::test(start_paused = true)]
    async fn an_id_has_a_bound() {
        let long = "x".repeat(ID_BYTES_MAX + 1);
        assert!(matches!(sequences().join(request(Some(&long))), Err((_, CallError::BadInput(_)))));
    }
}
