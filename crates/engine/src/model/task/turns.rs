//! Sequences at work: who has their turn goes to the batcher, pinned to the sequence's worker.
//!
//! Apart from `sequence`, which decides; here requests move. Nothing of this runs for models without
//! sequences. A request that waits for its turn is owned by its sequence, one that is on its way by
//! the table, so that each ends exactly once whatever becomes of its worker.

use jitney_batcher::{Rejection, RequestId};
use tokio::time::Instant;

use super::Task;
use crate::call::{Input, Payload, SequenceRef};
use crate::error::CallError;
use crate::model::board::add;
use crate::model::sequence::{Name, Sequences, Turn};
use crate::model::table::Ended;
use crate::model::table::Passage;
use crate::model::{Arrival, scatter};
use crate::outcome::ItemOutcome;

/// Longer than any sensible id; without a bound ids could fill the memory.
const ID_BYTES_MAX: usize = 1024;

impl Task {
    /// Lets a request wait for its turn in the sequence that it names, or in a new one.
    pub(super) fn join_sequence(&mut self, mut arrival: Arrival) {
        let room = self.find_room(&mut arrival);
        match (room, &mut self.state.sequences) {
            (Ok(key), Some(sequences)) => {
                sequences.join(Instant::now(), key, arrival.deadline, arrival);
                self.take_turns();
            }
            (Ok(_), None) => {}
            (Err(error), _) => scatter::end(arrival.request, Err(error), &self.board),
        }
    }

    fn find_room(&mut self, arrival: &mut Arrival) -> Result<usize, CallError> {
        if self.state.closing.is_some() {
            return Err(CallError::Rejected { reason: Rejection::Draining, retry_after: None });
        }
        // The alarm may not have had its turn yet.
        self.expire_sequences();
        let name = sequence_of(&mut arrival.request.payload)?;
        let sequences = self.state.sequences.as_mut().ok_or(CallError::Gone)?;
        sequences.find_room(Instant::now(), &name).map_err(CallError::Sequence)
    }

    /// Sends everybody to the batcher whose turn it is.
    pub(super) fn take_turns(&mut self) {
        while let Some(turn) = self.state.sequences.as_mut().and_then(Sequences::next) {
            self.take_turn(turn);
        }
    }

    fn take_turn(&mut self, turn: Turn<Arrival>) {
        let Turn { sequence, number, worker, anew, deadline, what: mut arrival } = turn;
        if arrival.request.reply.is_closed() {
            add(&self.board.abandoned, 1);
            return self.answered(sequence);
        }
        let input = raw(&mut arrival.request.payload).filter(|_| anew);
        if let Some(sequence) = input.and_then(|input| input.route.sequence.as_mut()) {
            sequence.starts = true;
        }
        let Arrival { weight, priority, origin, ref ticket, .. } = arrival;
        let ticket = ticket.clone();
        let passage =
            Passage { sequence, number, worker, deadline, weight, priority, origin, ticket };
        self.admit(arrival, Some(Box::new(passage)), false);
    }

    /// Frees the place of a request that has ended; its sequence goes on.
    pub(super) fn end(&mut self, id: RequestId) -> Ended {
        let ended = self.state.table.end(id);
        if let Some(passage) = &ended.passage {
            self.answered(passage.sequence);
        }
        ended
    }

    fn answered(&mut self, sequence: usize) {
        if let Some(sequences) = &mut self.state.sequences {
            sequences.answered(Instant::now(), sequence);
        }
    }

    /// Its worker has gone before it could leave: it waits again, for another one.
    pub(super) fn turn_back(&mut self, id: RequestId) {
        let Ended { request, passage, .. } = self.state.table.end(id);
        let (Some(request), Some(passage)) = (request, passage) else { return };
        let Passage { sequence, number, worker, deadline, weight, priority, origin, ticket } =
            *passage;
        let arrival = Arrival { request, deadline, bucket: 0, weight, priority, origin, ticket };
        let turn = Turn { sequence, number, worker, anew: false, deadline, what: arrival };
        if let Some(sequences) = &mut self.state.sequences {
            sequences.put_back(Instant::now(), turn);
        }
    }

    // -- workers ----------------------------------------------------------------------------

    pub(super) fn know_worker(&mut self, worker: u32) {
        if let Some(sequences) = &mut self.state.sequences {
            sequences.worker_up(worker);
        }
    }

    pub(super) fn forget_worker(&mut self, worker: u32) {
        if let Some(sequences) = &mut self.state.sequences {
            sequences.worker_gone(worker);
        }
    }

    // -- ends -------------------------------------------------------------------------------

    /// Ends the sequences that the model says are over.
    pub(super) fn end_sequences(&mut self, items: &[ItemOutcome]) {
        let Some(sequences) = &mut self.state.sequences else { return };
        let end = &self.state.sequence_headers.end;
        let headers = items.iter().flatten().flat_map(|output| &output.headers);
        for (_, ids) in headers.filter(|(name, _)| name.eq_ignore_ascii_case(end)) {
            for id in ids.split(';') {
                sequences.end(Instant::now(), id.trim());
            }
        }
    }

    /// Ends the sequences whose time is over, and refuses those whose deadline passed in one.
    pub(super) fn expire_sequences(&mut self) {
        let now = Instant::now();
        let Some(sequences) = &mut self.state.sequences else { return };
        if sequences.alarm().is_some_and(|alarm| alarm <= now) {
            let late = sequences.expire(now);
            self.refuse_all(late, Rejection::Expired);
        }
    }

    /// Refuses everybody who waits for a turn.
    pub(super) fn refuse_turns(&mut self, reason: Rejection) {
        let waiting = self.state.sequences.as_mut().map(Sequences::take_all);
        self.refuse_all(waiting.unwrap_or_default(), reason);
    }

    fn refuse_all(&self, arrivals: Vec<Arrival>, reason: Rejection) {
        for arrival in arrivals {
            let error = CallError::Rejected { reason, retry_after: None };
            scatter::end(arrival.request, Err(error), &self.board);
        }
    }

    /// How many wait for their turn.
    pub(super) fn waiting_turns(&self) -> u32 {
        let waiting = self.state.sequences.as_ref().map_or(0, Sequences::waiting);
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }
}

fn raw(payload: &mut Payload) -> Option<&mut Input> {
    match payload {
        Payload::Raw(input) => Some(input),
        Payload::Decoded(_) => None,
    }
}

/// The sequence that a request names. One that names none begins a sequence of its own, and its
/// handler is told so.
fn sequence_of(payload: &mut Payload) -> Result<Name, CallError> {
    let Some(Input { id, route, .. }) = raw(payload) else {
        return Err(CallError::BadInput("a model in this process keeps no sequences".to_owned()));
    };
    if let Some(SequenceRef { id, .. }) = route.sequence.as_deref() {
        let fits = id.len() <= ID_BYTES_MAX;
        let error =
            || CallError::BadInput(format!("a sequence id has at most {ID_BYTES_MAX} bytes"));
        return fits.then(|| Name { id: id.clone(), chosen: true }).ok_or_else(error);
    }
    let id = format!("ts-seq-{id}");
    route.sequence = Some(Box::new(SequenceRef { id: id.clone(), starts: true }));
    Ok(Name { id, chosen: false })
}
