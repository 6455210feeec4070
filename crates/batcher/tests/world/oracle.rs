//! The judge: compares what the batcher says with its own books, action by action.
//!
//! It knows the rules but none of the batcher's code. `judge` says what was wrong, or nothing.

use jitney_batcher::*;

use super::books::{Batch, BatcherState, Books, Checked, Known, count, ensure, sum_items};

/// A retry budget no story can spend.
pub const ENDLESS: u32 = 1_000_000;
/// Interactive dispatches in a row that a due bulk batch must bear.
const BULK_TURN: u32 = 8;

#[derive(Default)]
pub struct Oracle {
    books: Books,
    running: Vec<BatchId>,
    timer: Option<Nanos>,
    dispatches: u64,
    /// How often a due bulk batch was passed over; unknown after suspects kept a worker.
    passed_over: Option<u32>,
    /// Suspects went last: it is the turn of fresh requests.
    fresh_turn: bool,
}

impl Oracle {
    pub fn new(config: &Config) -> Self {
        let mut oracle = Self::default();
        oracle.books.configure(config);
        oracle.passed_over = Some(0);
        oracle
    }

    pub fn knows(&self, id: RequestId) -> bool {
        self.books.requests.contains_key(&id)
    }

    pub fn is_empty(&self) -> bool {
        self.books.requests.is_empty()
    }

    pub fn running(&self) -> &[BatchId] {
        &self.running
    }

    pub fn timer(&self) -> Option<Nanos> {
        self.timer
    }

    pub fn judge(
        &mut self,
        now: Nanos,
        event: &Event,
        out: &Actions,
        batcher: &Batcher,
    ) -> Checked {
        self.books.now = now;
        self.books.learn(event)?;
        if matches!(event, Event::Configure(_)) {
            self.passed_over = Some(0);
        }
        let timers = out.iter().filter(|a| matches!(a, Action::SetTimer(_) | Action::ClearTimer));
        ensure(timers.count() <= 1, || "more than one timer".into())?;
        for action in out.iter() {
            self.follow(event, action, out)?;
        }
        self.running = self.books.batches.keys().copied().collect();
        self.check_waiting()?;
        if matches!(
            event,
            Event::Arrive(Request { more: true, .. }) | Event::NeighboursAnswered { .. }
        ) {
            self.check_silence(out)?;
        } else {
            self.check_dues()?;
            self.check_timer()?;
        }
        self.check_counts(batcher)
    }

    // What an action claims

    fn follow(&mut self, event: &Event, action: &Action, out: &Actions) -> Checked {
        match action {
            Action::Dispatch(dispatch) => {
                let Dispatch { worker, batch, members, items, attempt, reason, padding, .. } =
                    dispatch;
                let members = out.members(members);
                self.check_slot(*worker, members, *reason)?;
                self.check_company(members, *items, *attempt, *reason)?;
                self.check_padding(members, *padding, *reason)?;
                if *reason == DispatchReason::Retry {
                    self.check_group(members, *worker)?;
                } else {
                    self.check_turn(members, *reason)?;
                }
                self.dispatch(*worker, *batch, members)
            }
            Action::Reject { id, reason, .. } => {
                let known = self.end(*id)?;
                ensure(self.deserved(event, &known, *reason), || format!("{id:?} not {reason:?}"))
            }
            Action::Fail { id, kind } => {
                let known = self.end(*id)?;
                ensure(self.infeasible(&known, *kind), || format!("{id:?} deserved another chance"))
            }
            Action::SetTimer(time) => self.turn(Some(*time)),
            Action::ClearTimer => self.turn(None),
        }
    }

    fn turn(&mut self, timer: Option<Nanos>) -> Checked {
        ensure(self.timer != timer, || "the timer was already set so".into())?;
        self.timer = timer;
        Ok(())
    }

    fn end(&mut self, id: RequestId) -> Result<Known, String> {
        let known = self.books.requests.remove(&id).ok_or(format!("{id:?} ended twice"))?;
        ensure(known.state != BatcherState::Running, || format!("{id:?} ended while it ran"))?;
        Ok(known)
    }

    fn deserved(&self, event: &Event, known: &Known, reason: Rejection) -> bool {
        let newcomer = matches!(event, Event::Arrive(request) if request.id == known.request.id);
        match reason {
            Rejection::Expired => known.request.deadline <= self.books.now,
            Rejection::Cancelled => known.cancelled,
            Rejection::TooLarge => !self.books.holds(&[known]),
            Rejection::Draining => newcomer && self.books.draining,
            Rejection::QueueFull => newcomer && self.books.full_for(known),
            // By what was learned, which the oracle does not know: only where there is a deadline.
            Rejection::Infeasible | Rejection::Overload => {
                self.books.adaptive() && known.request.deadline != Nanos::MAX
            }
            Rejection::Quota => self.books.adaptive() && self.books.full_for(known),
            Rejection::NoWorker => self.books.stranded(known),
        }
    }

    fn infeasible(&self, known: &Known, kind: BatchFailure) -> bool {
        let spent = kind != BatchFailure::Crashed && self.books.config.retry_budget != ENDLESS;
        let last = match kind {
            BatchFailure::Handler | BatchFailure::TimedOut => known.company == 1,
            BatchFailure::Crashed => known.given_up,
        };
        let pinned = known.request.worker.is_some();
        let late = known.suspect_until.is_some_and(|until| until <= self.books.now);
        let over = last || spent || pinned || late || !self.books.config.isolate;
        matches!(known.state, BatcherState::Retry(_)) && over
    }

    // What must be true of a dispatch

    fn check_slot(&self, worker: WorkerId, ids: &[RequestId], reason: DispatchReason) -> Checked {
        let free: Vec<_> = self.books.free_workers().collect();
        let [_, suspects_wait] = self.books.suspects_run_and_wait();
        if self.books.requests.get(&ids[0]).is_some_and(|known| known.suspect_until.is_some()) {
            return self.check_worker_of_suspects(worker);
        }
        ensure(free.contains(&worker), || format!("{worker:?} has no free slot"))?;
        let pinned = self.books.requests.get(&ids[0]).and_then(|known| known.request.worker);
        ensure(pinned.is_none() || reason != DispatchReason::Retry, || "a pinned retry".into())?;
        let chosen = reason == DispatchReason::Retry || self.books.adaptive();
        let busy = |id: &&WorkerId| self.books.workers[*id].busy;
        let first = if self.books.staged { free.iter().min_by_key(busy) } else { free.first() };
        let right = match pinned {
            Some(pinned) => pinned == worker,
            // One of the workers may be kept for suspects.
            None => chosen || suspects_wait || first == Some(&worker),
        };
        ensure(right, || format!("{worker:?} is not the right one of {free:?}"))
    }

    /// Suspects have a worker for themselves.
    fn check_worker_of_suspects(&self, worker: WorkerId) -> Checked {
        let it = self.books.workers.get(&worker).filter(|it| !it.retiring && it.busy < it.slots);
        ensure(it.is_some(), || format!("{worker:?} has no slot for suspects"))?;
        let mut beside = self.books.batches.values().filter(|batch| batch.worker == worker);
        ensure(beside.all(|batch| self.books.suspects(batch)), || "suspects beside others".into())
    }

    fn check_company(
        &self,
        ids: &[RequestId],
        items: u32,
        attempt: u8,
        why: DispatchReason,
    ) -> Checked {
        let mut members = Vec::new();
        for id in ids {
            let known =
                self.books.requests.get(id).ok_or(format!("{id:?} departs after its end"))?;
            let retry = matches!(known.state, BatcherState::Retry(_));
            ensure(known.state != BatcherState::Running, || format!("{id:?} departs twice"))?;
            ensure(!known.cancelled, || format!("{id:?} departs though cancelled"))?;
            ensure(known.request.deadline > self.books.now, || format!("{id:?} departs expired"))?;
            ensure(attempt == known.attempts + 1, || format!("{id:?}: not attempt {attempt}"))?;
            ensure(retry == (why == DispatchReason::Retry), || format!("{id:?} is no {why:?}"))?;
            members.push(known);
        }
        let first = *members.first().ok_or("an empty batch")?;
        ensure(members.iter().all(|it| self.books.may_meet(it, first)), || {
            "strangers meet".into()
        })?;
        ensure(self.books.holds(&members), || "a limit is exceeded".into())?;
        ensure(items == sum_items(&members) as u32, || format!("not {items} items"))
    }

    /// The account is right; and of those who travel for the first time, the shorter ones are of the
    /// next class and could be borrowed, and the batch is held as padded.
    fn check_padding(
        &self,
        ids: &[RequestId],
        padding: Option<Padding>,
        reason: DispatchReason,
    ) -> Checked {
        let members: Vec<_> = ids.iter().map(|id| &self.books.requests[id]).collect();
        let want = self.books.padding(&members);
        ensure(padding == want, || format!("padding {padding:?}, not {want:?}"))?;
        if self.books.config.measure != Measure::Padded || reason == DispatchReason::Retry {
            return Ok(());
        }
        let lead = members[0];
        let most = self.books.config.max_cost.max(self.books.weight(&[lead], lead));
        ensure(self.books.weight(&members, lead) <= most, || "padded beyond the limit".into())?;
        let class = self.books.class(lead);
        let shorter = self.books.shorter(class);
        let classes = members.iter().map(|it| self.books.class(it));
        let borrowed = classes.clone().any(|it| it != class);
        ensure(classes.clone().all(|it| it == class || it == shorter), || "not neighbours".into())?;
        for at in (0..members.len()).filter(|&at| self.books.class(members[at]) != class) {
            let may = self.books.may_borrow(&members[..=at], lead);
            ensure(may, || format!("too much of it is padding: {padding:?}"))?;
        }
        let left = self
            .books
            .fresh()
            .any(|it| self.books.same_lane(it, lead) && !ids.contains(&it.request.id));
        ensure(!(borrowed && left), || "its own group is passed over".into())
    }

    fn check_group(&self, members: &[RequestId], worker: WorkerId) -> Checked {
        let first = &self.books.requests[&members[0]];
        let (failed, suspects) = (first.worker == Some(worker), first.suspect_until.is_some());
        let idle = |id: &WorkerId| self.books.workers[id].busy == 0;
        let begins = idle(&worker);
        let mut others = self.books.free_workers().filter(|free| *free != worker);
        let other = others.any(|other| !suspects || begins && idle(&other));
        let other = other && (suspects || !self.books.adaptive());
        if suspects && begins && self.fresh_turn && !self.books.adaptive() {
            let groups = self.books.groups();
            let mut loose = groups.iter().filter(|group| group[0].request.worker.is_none());
            let due = loose.any(|group| self.books.due(group).is_some());
            ensure(!due, || "suspects go twice while fresh work is due".into())?;
        }
        ensure(!(failed && other), || format!("a retry on {worker:?} again"))?;
        let small = |id| match self.books.requests[id].state {
            BatcherState::Retry(most) => members.len() <= most,
            BatcherState::Fresh | BatcherState::Running => false,
        };
        ensure(members.iter().all(small), || "a retry in too large a group".into())
    }

    /// Fresh work: after retries, when due, interactive first, oldest first, nobody overtaken.
    fn check_turn(&mut self, members: &[RequestId], reason: DispatchReason) -> Checked {
        let retry = self.books.waiting().any(|known| matches!(known.state, BatcherState::Retry(_)));
        // A pinned one may take a second slot ahead of its time, which others are not handed.
        let pinned = self.books.requests[&members[0]].request.worker.is_some();
        let early = pinned && self.books.adaptive() && !self.books.idle();
        let [_, suspects_wait] = self.books.suspects_run_and_wait();
        ensure(!retry || early || suspects_wait, || "fresh work departs before a retry".into())?;
        if self.books.adaptive() {
            // Those who are pinned stand in order of arrival under every policy.
            return if pinned { Ok(()) } else { self.check_deadlines(members) };
        }
        let lead = &self.books.requests[&members[0]];
        let group: Vec<_> =
            self.books.fresh().filter(|known| self.books.same_lane(known, lead)).collect();
        ensure(self.books.due(&group) == Some(reason), || {
            format!("{reason:?}, not {:?}", self.books.due(&group))
        })?;
        for known in self.books.fresh() {
            let overtaken = members.iter().map(|id| &self.books.requests[id]).any(|member| {
                self.books.same_lane(member, known)
                    && member.request.priority == known.request.priority
                    && member.seq > known.seq
            });
            let left = !members.contains(&known.request.id);
            ensure(!(left && overtaken), || format!("{known:?} is overtaken"))?;
        }
        let [interactive, bulk] =
            [Priority::Interactive, Priority::Bulk].map(|it| self.books.oldest_due(it));
        let contested = interactive.is_some() && bulk.is_some();
        let bulk_turn = contested && self.passed_over == Some(BULK_TURN);
        let turn = if bulk_turn { bulk } else { interactive.or(bulk) };
        let known = self.passed_over.is_some() && !suspects_wait;
        ensure(turn == Some(lead.seq) || !known, || format!("{lead:?} leads out of turn"))?;
        let passed = contested && lead.request.priority == Priority::Interactive;
        self.passed_over = match (suspects_wait, passed) {
            (true, _) => None,
            (false, true) => self.passed_over.map(|passed| passed + 1),
            (false, false) => Some(0),
        };
        Ok(())
    }

    /// Under the adaptive policy members of one priority and tenant leave in order of deadline, and
    /// of those whom nothing hurries nobody is overtaken by a later one of their own kind.
    fn check_deadlines(&self, members: &[RequestId]) -> Checked {
        let members: Vec<_> = members.iter().map(|id| &self.books.requests[id]).collect();
        let key = |it: &Known| (it.request.deadline, it.seq);
        let alike = |a: &Known, b: &Known| {
            (a.request.priority, a.request.tenant) == (b.request.priority, b.request.tenant)
                && self.books.class(a) == self.books.class(b)
        };
        for (at, member) in members.iter().enumerate() {
            let late = members[..at].iter().find(|it| alike(it, member) && key(it) > key(member));
            ensure(late.is_none(), || format!("{late:?} travels before {member:?}"))?;
        }
        let patient = |it: &Known| it.request.deadline == Nanos::MAX && it.request.worker.is_none();
        for known in self.books.fresh().filter(|it| patient(it)) {
            let same_size = |it: &Known| {
                (it.request.items, it.request.cost) == (known.request.items, known.request.cost)
            };
            let overtaking = members.iter().find(|it| {
                patient(it)
                    && alike(it, known)
                    && self.books.may_meet(it, known)
                    && same_size(it)
                    && key(it) > key(known)
            });
            let left = members.iter().all(|it| it.request.id != known.request.id);
            ensure(!left || overtaking.is_none(), || format!("{known:?} is overtaken"))?;
        }
        Ok(())
    }

    fn dispatch(&mut self, worker: WorkerId, batch: BatchId, members: &[RequestId]) -> Checked {
        self.dispatches += 1;
        ensure(batch.0 == self.dispatches, || format!("{batch:?} is out of order"))?;
        for id in members {
            let known = self.books.requests.get_mut(id).ok_or("unknown member")?;
            known.state = BatcherState::Running;
            known.attempts += 1;
            known.company = members.len();
            known.worker = Some(worker);
        }
        self.fresh_turn = self.books.requests[&members[0]].suspect_until.is_some();
        self.books.workers.get_mut(&worker).ok_or("unknown worker")?.busy += 1;
        self.books.batches.insert(batch, Batch { worker, members: members.to_vec() });
        Ok(())
    }

    // What must be true after every step

    fn check_waiting(&self) -> Checked {
        for known in self.books.waiting() {
            ensure(!known.cancelled, || format!("{known:?} waits though cancelled"))?;
            ensure(known.request.deadline > self.books.now, || {
                format!("{known:?} waits though expired")
            })?;
            ensure(self.books.holds(&[known]), || format!("{known:?} waits though too large"))?;
            ensure(!self.books.stranded(known), || format!("{known:?} waits for nobody"))?;
            ensure(!known.given_up, || format!("{known:?} waits though it ended workers"))?;
            let late = known.suspect_until.is_some_and(|until| until <= self.books.now);
            ensure(!late, || format!("{known:?} was a suspect for too long"))?;
        }
        Ok(())
    }

    /// Before the last part of a request nobody leaves and no timer is turned.
    fn check_silence(&self, out: &Actions) -> Checked {
        let silent =
            out.iter().all(|action| matches!(action, Action::Reject { .. } | Action::Fail { .. }));
        ensure(silent, || "something is decided before the last part".into())
    }

    fn check_dues(&self) -> Checked {
        let [suspects_run, suspects_wait] = self.books.suspects_run_and_wait();
        ensure(!(suspects_wait && self.books.idle()), || "suspects and an idle worker".into())?;
        if self.books.adaptive() {
            return self.check_patience();
        }
        if suspects_wait {
            let groups = self.books.groups();
            let due = |it: &&Vec<&Known>| self.books.due(it).is_some() && !self.books.staged;
            let loose =
                groups.iter().filter(|it| it[0].request.worker.is_none()).any(|it| due(&it));
            let kept = usize::from(!suspects_run);
            let spare = self.books.free_workers().count() > kept;
            return ensure(!(loose && spare), || "two workers are kept for suspects".into());
        }
        let retry = self.books.waiting().any(|known| matches!(known.state, BatcherState::Retry(_)));
        let retry = retry && self.books.free_workers().next().is_some();
        let groups = self.books.groups();
        let mut served = groups.iter().filter(|group| self.books.served(group));
        let due = retry || served.any(|group| self.books.due(group).is_some());
        ensure(!due, || "a free slot and a due batch coexist".into())
    }

    /// Under the adaptive policy an idle worker may stand beside those who wait for company, but
    /// not for ever, and not while the model is being shut down.
    fn check_patience(&self) -> Checked {
        let loose = || self.books.waiting().filter(|known| known.request.worker.is_none());
        let patient = self.books.idle() && loose().next().is_some();
        ensure(!(patient && self.books.draining), || "a drain waits for company".into())?;
        ensure(!patient || self.timer.is_some(), || "nobody will look again".into())?;
        if let Policy::Adaptive(Adaptive { max_wait: Some(most), .. }) = self.books.config.policy {
            let tired = |it: &Known| it.arrived + most <= self.books.now;
            let tired = patient && loose().all(tired);
            ensure(!tired, || "all have waited long enough".into())?;
        }
        let window = self.books.window().filter(|_| self.books.adaptive());
        let over = |it: &Known| window.is_some_and(|window| it.arrived + window <= self.books.now);
        ensure(!(patient && loose().any(over)), || "a window is over".into())
    }

    /// Until when each one may wait, where there is such a time.
    fn expiries(&self) -> impl Iterator<Item = Nanos> {
        let until = |it: &Known| it.request.deadline.min(it.suspect_until.unwrap_or(Nanos::MAX));
        self.books.waiting().map(until).filter(|&time| time != Nanos::MAX)
    }

    fn check_adaptive_timer(&self) -> Checked {
        let expiry = self.expiries().min();
        let soon = expiry.is_none_or(|time| self.timer.is_some_and(|timer| timer <= time));
        ensure(soon, || format!("timer {:?} is after {expiry:?}", self.timer))?;
        let ahead = self.timer.is_none_or(|timer| timer > self.books.now);
        ensure(ahead, || format!("timer {:?} is not ahead", self.timer))
    }

    fn check_timer(&self) -> Checked {
        let [_, suspects_wait] = self.books.suspects_run_and_wait();
        if self.books.adaptive() || suspects_wait {
            return self.check_adaptive_timer();
        }
        let mut times: Vec<_> = self.expiries().collect();
        if let Policy::Window { delay } = self.books.config.policy {
            let served = || self.books.fresh().filter(|known| self.books.open_for(known));
            times.extend(served().map(|known| known.arrived + delay));
            times.extend(served().map(Known::half_time).filter(|&at| at != Nanos::MAX));
        }
        let want = times.into_iter().min();
        ensure(self.timer == want, || format!("timer {:?}, not {want:?}", self.timer))
    }

    fn check_counts(&self, batcher: &Batcher) -> Checked {
        let waiting: Vec<_> = self.books.waiting().collect();
        let have = (batcher.waiting(), batcher.waiting_items(), batcher.running());
        let want =
            (count(&waiting) as u32, sum_items(&waiting) as u32, self.books.batches.len() as u32);
        ensure(have == want, || format!("counts {have:?}, not {want:?}"))?;
        let drained = self.books.draining && self.books.requests.is_empty();
        ensure(batcher.drained() == drained, || "drained() is wrong".into())
    }
}
