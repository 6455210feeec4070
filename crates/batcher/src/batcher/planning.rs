//! What the batcher does under the adaptive policy: asks the planner and carries out its answers.
//!
//! Arrival, departure and refusal as elsewhere, only that the planner says who and when. All its
//! actions are written here; what it learns is told to it from here.

use super::Batcher;
use crate::action::{Actions, DispatchReason, Rejection};
use crate::adaptive::{DecisionKind, Planner, Trip, size_of};
use crate::config::{Config, Measure};
use crate::records::{List, Place};
use crate::request::{NEVER, Nanos, Priority, Request, RequestId};
use crate::running::Batch;

impl Batcher {
    // Learning

    /// A trial run taught how long a batch takes.
    pub(super) fn measured(&mut self, group: u16, (items, cost): (u32, u64), exec: Nanos) {
        let Config { measure, .. } = self.rules.config;
        let run = Request { items, cost, ..Request::new(RequestId(0)) };
        let size = Planner::padded(&self.rules.config, size_of(&run, measure)).into();
        self.planner.done(self.rules.now, (group, size), exec, None);
    }

    pub(super) fn learn(&mut self, batch: &Batch, exec: Nanos) {
        let now = self.rules.now;
        let leg = batch.leg;
        let late = now.saturating_sub(leg.departed).saturating_sub(exec);
        let size = match u32::try_from(leg.size) {
            Ok(items) => Planner::padded(&self.rules.config, items).into(),
            Err(_) => leg.size,
        };
        self.planner.done(now, (leg.group, size), exec, leg.alone.then_some(late));
        if self.rules.adaptive() {
            let members = self.records.walk(&batch.members);
            let staying = members.filter(|record| !record.cancelled && !record.request.more);
            self.planner.answered(now, staying.map(|record| record.request.origin));
        }
    }

    // Arrival

    pub(super) fn arrive_adaptive(&mut self, request: Request, out: &mut Actions) {
        let now = self.rules.now;
        let (lane, size) = self.planner.arrived(&request, &self.rules);
        let at = self.records.admit(request, now);
        self.glance();
        if let Some(reason) = self.unwelcome(lane, &request, size) {
            self.planner.note_refusal(reason, request.deadline, size, now);
            return self.reject(at, reason, self.drain_time(), out);
        }
        self.insert(at, lane, size);
        if !request.more && self.overfull() {
            // One who leaves at once needs no place in the queue.
            self.decide(out);
            self.make_room(request.id, out);
        }
    }

    /// Why a newcomer is refused at the door, if so: it would be late, or wait far too long.
    fn unwelcome(&self, lane: usize, request: &Request, size: u32) -> Option<Rejection> {
        if request.deadline == NEVER {
            return self
                .planner
                .overloaded(self.rules.now, &self.rules.config)
                .then_some(Rejection::Overload);
        }
        let soonest = self.planner.fleet.soonest(self.rules.now)?;
        let entry = (request.deadline, size);
        if self.planner.hopeless(lane, entry, soonest, &self.rules) {
            return Some(Rejection::Hopeless);
        }
        let place = (lane, request.priority as usize);
        self.planner.crowded(place, entry, soonest, &self.rules).then_some(Rejection::Overload)
    }

    /// Keeps the queue within its bound: at the cost of the tenant that holds more than its share.
    fn make_room(&mut self, id: RequestId, out: &mut Actions) {
        let queue = self.rules.config.max_queue;
        let Some(at) = self.records.find(id) else { return };
        if !self.records[at].waits() || !self.overfull() {
            return;
        }
        let tenant = self.records[at].request.tenant;
        let contested = self.planner.fair.contested();
        let (victim, reason) = match contested && !self.planner.fair.over_share(tenant, queue) {
            true => {
                self.heaviest(queue).map_or((at, Rejection::QueueFull), |it| (it, Rejection::Quota))
            }
            false if contested => (at, Rejection::Quota),
            false => (at, Rejection::QueueFull),
        };
        self.withdraw(victim);
        self.reject(victim, reason, self.drain_time(), out);
    }

    /// The most patient request of the tenant that is furthest above its share.
    fn heaviest(&self, queue: u32) -> Option<u32> {
        let lines = self.planner.queue.lanes.iter().flat_map(|lane| &lane.lines);
        let entries = lines.flat_map(|line| line.iter());
        let theirs = entries.filter(|it| self.planner.fair.heaviest(it.tenant, queue));
        theirs.max_by_key(|it| (it.deadline, it.seq)).map(|it| it.at)
    }

    // Standing in line

    /// Lets a request wait that has been here before.
    pub(super) fn line_up(&mut self, at: u32) {
        let request = self.records[at].request;
        let lane = self.planner.lane(&request, &self.rules.config);
        let size = size_of(&request, self.rules.config.measure);
        self.insert(at, lane, size);
    }

    fn insert(&mut self, at: u32, lane: usize, size: u32) {
        let (arrived, request) = (self.records[at].arrived, self.records[at].request);
        let given = Planner::given(request.deadline, arrived);
        let Self { planner, rules, records, .. } = self;
        planner.fair.arrived(request.tenant, size, rules.now, given, &rules.config);
        planner.queue.insert(records, at, lane, size);
    }

    pub(super) fn leave_line(&mut self, at: u32, lane: usize) {
        self.planner.fair.left(self.records[at].request.tenant);
        self.planner.queue.remove(&mut self.records, at, lane);
    }

    pub(super) fn leave_lines(&mut self) -> Vec<u32> {
        let all = self.planner.queue.take_all(&mut self.records);
        all.iter().for_each(|&at| self.planner.fair.left(self.records[at].request.tenant));
        all
    }

    // DispatchReason

    /// Lets go whatever does not gain by waiting, while anybody is free to take it.
    pub(super) fn decide_adaptive(&mut self, out: &mut Actions) {
        self.glance();
        if self.retries.len > 0 || self.lanes.len > 0 {
            self.decide_others(out);
        }
        self.refuse_hopeless(out);
        if self.planner.fleet.open > 0 && self.planner.still_paced(self.rules.now) {
            return;
        }
        self.planner.until = None;
        while self.planner.fleet.open > 0 && self.planner.queue.len > 0 {
            self.survey();
            let Some(trip) = self.planner.next_trip(&self.rules) else { break };
            self.travel(trip, out);
            self.glance();
        }
        // Whoever stood behind a smaller head that has left may be without hope too.
        self.refuse_hopeless(out);
    }

    /// Lets those go who do not stand in a line: to be tried again, or pinned to a worker.
    fn decide_others(&mut self, out: &mut Actions) {
        while self.planner.fleet.open > 0 && self.depart_again(out) {
            self.survey();
        }
        while self.lanes.len > 0 && self.depart(out) {}
        self.glance();
    }

    /// Looks at the workers, unless that was done at this very moment.
    fn survey(&mut self) {
        let (now, ahead) = (self.rules.now, self.planner.ahead());
        if !self.planner.fleet.current(now) {
            self.slots.survey(now, ahead, &mut self.planner.fleet);
        }
    }

    /// The same where it is enough to know who is open, and how soon somebody will be.
    fn glance(&mut self) {
        if !self.planner.fleet.stands(self.rules.now) {
            self.survey();
        }
    }

    fn travel(&mut self, trip: Trip, out: &mut Actions) {
        self.planner.note(&trip, DecisionKind::Dispatch(trip.reason), self.rules.now);
        let members = self.board(trip);
        let worker = self.take_slot(None);
        self.dispatch(worker, members, 1, trip.reason, out);
        self.refuse_passed_over(trip, out);
    }

    /// Takes the members out of their line: the run that was formed, or by turns of the tenants.
    fn board(&mut self, trip: Trip) -> List {
        let Trip { lane, line, formed, .. } = trip;
        let mut batch = List::EMPTY;
        let queued = &self.planner.queue.lanes[lane].lines[line];
        let choice = formed.skip + formed.len < queued.len() && self.planner.fair.contested();
        if choice {
            let mut picked = std::mem::take(&mut self.planner.picked);
            let config = &self.rules.config;
            self.planner.fair.pick(queued, formed.skip, formed.size, config, &mut picked);
            for (taken, &position) in picked.iter().enumerate() {
                self.embark(&mut batch, lane, line, position as usize - taken);
            }
            self.planner.picked = picked;
        }
        if batch.len == 0 {
            (0..formed.len).for_each(|_| self.embark(&mut batch, lane, line, formed.skip));
        }
        let room = self.fill_up(&mut batch, trip);
        let padded = self.rules.config.measure == Measure::Padded;
        if padded && self.planner.queue.lanes[lane].is_empty() {
            self.borrow(&mut batch, trip, room);
        }
        batch
    }

    /// The other priority takes the room that is left while that makes nobody late; says what is
    /// still left then.
    fn fill_up(&mut self, batch: &mut List, trip: Trip) -> u64 {
        let other = 1 - trip.line;
        let lane = &mut self.planner.queue.lanes[trip.lane];
        let waits = !lane.lines[other].is_empty();
        let interactive = trip.line == Priority::Interactive as usize;
        lane.led = if waits && interactive { lane.led + 1 } else { 0 };
        let mut room = trip.room;
        while let Some(head) = self.planner.queue.lanes[trip.lane].lines[other].head()
            && u64::from(head.size) <= room
            && head.deadline > self.rules.now
            && self
                .rules
                .config
                .holds(batch.items + u64::from(head.items), batch.cost + u128::from(head.cost))
        {
            room -= u64::from(head.size);
            self.embark(batch, trip.lane, other, 0);
        }
        room
    }

    pub(super) fn embark(&mut self, batch: &mut List, lane: usize, line: usize, position: usize) {
        let Some(entry) = self.planner.queue.take(lane, line, position) else { return };
        self.planner.fair.left(entry.tenant);
        self.planner.fair.served(entry.tenant, entry.size);
        self.records[entry.at].place = Place::Running;
        self.records.push(batch, entry.at);
    }

    // Rejection

    /// Ends those at the head of a line who could not be answered in time any more.
    fn refuse_hopeless(&mut self, out: &mut Actions) {
        if self.planner.heads(&self.rules).hope_ends >= self.rules.now {
            return;
        }
        for lane in 0..self.planner.queue.lanes.len() {
            if self.planner.queue.lanes[lane].is_empty() {
                continue;
            }
            for line in 0..2 {
                self.refuse_heads(lane, line, 0, Rejection::Hopeless, out);
            }
        }
    }

    /// Ends those who were passed over and will be late at the next worker.
    fn refuse_passed_over(&mut self, trip: Trip, out: &mut Actions) {
        if trip.formed.skip > 0 && trip.reason == DispatchReason::Deadline {
            self.survey();
            let after = self.planner.fleet.soonest(self.rules.now).unwrap_or(0);
            self.refuse_heads(trip.lane, trip.line, after, Rejection::Overload, out);
        }
    }

    fn refuse_heads(
        &mut self,
        lane: usize,
        line: usize,
        after: Nanos,
        reason: Rejection,
        out: &mut Actions,
    ) {
        while let Some(head) = self.planner.queue.lanes[lane].lines[line].head()
            && self.planner.hopeless(lane, (head.deadline, head.size), after, &self.rules)
        {
            let (at, deadline, size) = (head.at, head.deadline, head.size);
            let retry_after = self.drain_time();
            self.planner.note_refusal(reason, deadline, size, self.rules.now);
            self.withdraw(at);
            self.reject(at, reason, retry_after, out);
        }
    }

    /// When something is to be decided again though nothing happens.
    pub(super) fn next_look(&mut self) -> Nanos {
        if self.planner.queue.len == 0 {
            return NEVER;
        }
        self.glance();
        let heads = self.planner.heads(&self.rules);
        let hope_ends = match heads.hope_ends {
            NEVER => NEVER,
            _ if self.planner.doubts(self.rules.now) => NEVER,
            time => time.max(self.rules.now) + 1,
        };
        let fleet = &self.planner.fleet;
        let ahead = fleet.ahead.filter(|_| fleet.open == 0).unwrap_or(NEVER);
        let until = self.planner.until.unwrap_or(NEVER);
        until.min(ahead).min(hope_ends).min(heads.expire)
    }

    /// Ends those in a line whose deadline has come.
    pub(super) fn expire_lines(&mut self, out: &mut Actions) {
        let now = self.rules.now;
        if self.planner.queue.len == 0 || self.planner.heads(&self.rules).expire > now {
            return;
        }
        for lane in 0..self.planner.queue.lanes.len() {
            for line in 0..2 {
                while let Some(head) = self.planner.queue.lanes[lane].lines[line].head()
                    && head.deadline <= now
                {
                    let at = head.at;
                    self.withdraw(at);
                    self.reject(at, Rejection::Expired, None, out);
                }
            }
        }
    }
}
