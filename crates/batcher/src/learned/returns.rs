//! Which clients will come back soon: those that send their next request after their answer.
//!
//! The members of an answered batch form a cohort; each origin remembers that it is out. The times
//! that clients took to return tell how many of a cohort to expect by when. Requests whose head was
//! seen but whose body is still coming are counted here too. The table has a fixed size: where two
//! origins share a slot, the older one is forgotten. An origin with several requests at once may be
//! many clients behind a proxy; `multiplex` finds out whether they come back. Nobody is expected
//! until there is `evidence` that they come because they were answered.

use super::evidence::Evidence;
use super::return_times::ReturnTimes;
use crate::request::{Nanos, Origin};

/// A client that is out for longer than this is not expected any more, in nanoseconds. Chosen:
/// nobody is kept waiting for so long.
const HORIZON: Nanos = 200_000_000;
/// Answered batches of which clients are still expected. Bound: more than run at a time within the
/// horizon.
const COHORTS: usize = 8;
/// The cohorts, and the clients that are about to be answered. Bound: one more than the cohorts.
pub(crate) const OUT_MAX: usize = COHORTS + 1;
/// Origins that are remembered; a power of two. Bound: two that share a slot forget each other.
const SLOTS: usize = 2048;
/// An announced body that is this many times later than usual is not waited for. Chosen: its client
/// may have gone.
const STALE: f64 = 4.0;

/// What is known of an origin.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: u64,
    /// Requests of it that were answered and not followed by another.
    out: u32,
    /// Requests of it that were announced, and how many of them count as returns.
    announced: u32,
    returning: u32,
    /// When the last of them was.
    announced_at: Nanos,
    done: Nanos,
    cohort: u64,
    multiplex: Multiplex,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cohort {
    serial: u64,
    done: Nanos,
    remaining: u32,
}

/// The part of a cohort that is still out: for how long, the weight of times up to that, and how
/// many clients each further unit of weight stands for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Out {
    age: Nanos,
    back: f64,
    each: f64,
}

/// Clients that are out, and when they tend to return.
#[derive(Debug)]
pub(crate) struct Returns {
    /// None until the first of them: most models of a server with very many are never asked.
    slots: Box<[Slot]>,
    cohorts: [Cohort; COHORTS],
    serial: u64,
    /// No cohort with clients that are out was answered before this.
    oldest: Nanos,
    histogram: ReturnTimes,
    evidence: Evidence,
    announced: u32,
    announced_last: Nanos,
    /// Mean time between head and body.
    body: f64,
}

impl Default for Returns {
    fn default() -> Self {
        Self {
            slots: Box::default(),
            cohorts: [Cohort::default(); COHORTS],
            serial: 0,
            oldest: 0,
            histogram: ReturnTimes::default(),
            evidence: Evidence::default(),
            announced: 0,
            announced_last: 0,
            body: 0.0,
        }
    }
}

impl Returns {
    // What happens

    /// A batch was answered: opens the cohort that `answered` fills.
    pub(crate) fn batch(&mut self, now: Nanos) {
        if self.histogram.worth_asking() {
            self.evidence.judge(now);
        }
        self.serial += 1;
        let cohort = &mut self.cohorts[self.serial as usize % COHORTS];
        let lost = cohort.remaining;
        *cohort = Cohort { serial: self.serial, done: now, remaining: 0 };
        if lost > 0 {
            self.histogram.give_up(lost);
        }
    }

    /// All members of the batch were answered: guesses how many of those who are out come back soon.
    pub(crate) fn batch_over(&mut self, now: Nanos) {
        if self.histogram.worth_asking() {
            let moment = self.evidence.moment(self.histogram.median());
            let mut out = [Out::default(); OUT_MAX];
            let expected = self.expected(self.all_out(now, 0, &mut out), moment);
            self.evidence.guess(now, moment, expected);
        }
    }

    /// A member of the batch was answered.
    pub(crate) fn answered(&mut self, now: Nanos, origin: Origin) {
        let serial = self.serial;
        let slot = self.slot(origin);
        if now.saturating_sub(slot.done) > HORIZON {
            slot.out = 0;
        }
        slot.out += 1;
        (slot.done, slot.cohort) = (now, serial);
        let counts = slot.multiplex.answered(slot.out);
        self.cohorts[serial as usize % COHORTS].remaining += u32::from(counts);
    }

    /// A request came from there. Returns whether it is that of a client that came back because it
    /// was answered.
    pub(crate) fn arrived(&mut self, now: Nanos, origin: Origin) -> bool {
        if self.announced == 0 || self.slot(origin).announced == 0 {
            return self.came_back(now, origin) && self.evidence.proven();
        }
        let slot = self.slot(origin);
        slot.announced -= 1;
        let returning = slot.returning > 0;
        slot.returning -= u32::from(returning);
        let took = now.saturating_sub(slot.announced_at) as f64;
        self.announced = self.announced.saturating_sub(1);
        self.body += (took - self.body) / 16.0;
        returning && self.evidence.proven()
    }

    /// A request has begun to come from there.
    pub(crate) fn announce(&mut self, now: Nanos, origin: Origin) {
        let returning = self.came_back(now, origin);
        let slot = self.slot(origin);
        slot.announced += 1;
        slot.announced_at = now;
        slot.returning += u32::from(returning);
        self.announced += 1;
        self.announced_last = now;
    }

    /// It will not come after all.
    pub(crate) fn retract(&mut self, origin: Origin) {
        let slot = self.slot(origin);
        if slot.announced > 0 {
            slot.announced -= 1;
            slot.returning = slot.returning.min(slot.announced);
            self.announced = self.announced.saturating_sub(1);
        }
    }

    /// Whether a request is the next one of a client that is out.
    fn came_back(&mut self, now: Nanos, origin: Origin) -> bool {
        let slot = self.slot(origin);
        let away = now.saturating_sub(slot.done);
        if away > HORIZON {
            slot.out = 0;
        }
        let counts = slot.multiplex.arrived(&mut slot.out);
        if !counts {
            self.evidence.arrived(now, false);
            return false;
        }
        let serial = slot.cohort;
        let cohort = &mut self.cohorts[serial as usize % COHORTS];
        // A client that was given up already counts as a new one.
        let expected = cohort.serial == serial && cohort.remaining > 0;
        match expected {
            true => cohort.remaining -= 1,
            false => self.histogram.take_back(),
        }
        self.histogram.learn(away);
        self.evidence.arrived(now, expected);
        expected
    }

    // What to expect

    /// Gives up the clients that have been out for too long.
    pub(crate) fn close(&mut self, now: Nanos) {
        if now.saturating_sub(self.oldest) <= HORIZON {
            return;
        }
        self.oldest = now;
        for cohort in self.cohorts.iter_mut().filter(|it| it.remaining > 0) {
            if now.saturating_sub(cohort.done) > HORIZON {
                self.histogram.give_up(cohort.remaining);
                cohort.remaining = 0;
            } else {
                self.oldest = self.oldest.min(cohort.done);
            }
        }
    }

    /// Whether clients come back because they were answered, so that they may be waited for.
    pub(crate) fn awaited(&self) -> bool {
        self.evidence.proven() && self.histogram.worth_asking()
    }

    /// The cohorts of which clients are still expected; `about` more are about to be answered.
    pub(crate) fn out<'a>(&self, now: Nanos, about: u32, out: &'a mut [Out; OUT_MAX]) -> &'a [Out] {
        if self.awaited() { self.all_out(now, about, out) } else { &[] }
    }

    /// The cohorts of which clients are out, whether or not they may be waited for.
    fn all_out<'a>(&self, now: Nanos, about: u32, out: &'a mut [Out; OUT_MAX]) -> &'a [Out] {
        let mut len = 0;
        let about = Cohort { serial: 0, done: now, remaining: about };
        for cohort in self.cohorts.iter().chain([&about]) {
            let age = now.saturating_sub(cohort.done);
            if cohort.remaining > 0 {
                let back = self.histogram.by(age);
                let others = self.histogram.total() - back;
                let each = f64::from(cohort.remaining) / others;
                out[len] = Out { age, back, each };
                len += usize::from(others > 0.0);
            }
        }
        &out[..len]
    }

    /// How many of them return within this time.
    pub(crate) fn expected(&self, out: &[Out], within: Nanos) -> f64 {
        let one = |it: &Out| it.each * (self.histogram.by(it.age + within) - it.back);
        out.iter().map(one).sum()
    }

    /// Whether clients do come back and none is out: all that could come have come.
    pub(crate) fn all_back(&self, now: Nanos) -> bool {
        let recent = |it: &Cohort| it.remaining > 0 && now.saturating_sub(it.done) <= HORIZON;
        self.awaited() && !self.cohorts.iter().any(recent)
    }

    /// Clients that were answered and whose next request is not here yet; it may have begun to come.
    pub(crate) fn away(&self, now: Nanos) -> u32 {
        let recent = |it: &&Cohort| now.saturating_sub(it.done) <= HORIZON;
        let silent: u32 = self.cohorts.iter().filter(recent).map(|it| it.remaining).sum();
        silent.saturating_add(self.announced)
    }

    /// The time by which half of those were back that came back at all.
    pub(crate) fn turn(&self) -> Nanos {
        self.histogram.median()
    }

    /// How many announced requests arrive within this time.
    pub(crate) fn announced(&self, now: Nanos, within: Nanos) -> f64 {
        let since = now.saturating_sub(self.announced_last) as f64;
        if self.announced == 0 || since > STALE * self.body.max(1000.0) {
            return 0.0;
        }
        f64::from(self.announced) * (within as f64 / self.body.max(1.0)).min(1.0)
    }

    /// The slot of an origin, emptied if it was another's.
    fn slot(&mut self, origin: Origin) -> &mut Slot {
        let key = (origin.peer << 2 | origin.kind as u64).wrapping_add(1);
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.ilog2());
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); SLOTS].into_boxed_slice();
        }
        let slot = &mut self.slots[hash as usize];
        if slot.key != key {
            self.announced = self.announced.saturating_sub(slot.announced);
            *slot = Slot { key, ..Slot::default() };
        }
        slot
    }
}

// Whether an origin with several requests at once is a fixed set of clients that come back. A connection
// that carries one request at a time is one client, and its next request is a return. One that carries
// many may be a fixed set of clients that each wait for their answer, or a proxy in front of many. A
// fixed set comes back completely now and then, and no request comes that was not preceded by an answer.
// Independent clients come by chance, so that soon there are more requests than answers, or fewer.

/// Requests after which an origin is judged anew. Chosen: independent clients rarely come in step
/// for so long.
const WINDOW: u32 = 64;
/// How often in a row it must pass: independent clients may look like a fixed set once, by chance.
/// Chosen: twice.
const PASSES: u32 = 2;

/// What is known of the clients behind one origin.
#[derive(Clone, Copy, Debug, Default)]
struct Multiplex {
    /// Whether it has ever been owed two requests: it is more than one client.
    several: bool,
    /// Windows in a row in which all came back.
    clean: u32,
    seen: u32,
    /// Of this window: requests that were not expected, and the fewest that were expected.
    surprises: u32,
    fewest: u32,
}

impl Multiplex {
    /// A request was answered, so that this many are owed; whether its client is expected back.
    fn answered(&mut self, owed: u32) -> bool {
        self.several |= owed > 1;
        !self.several || self.clean >= PASSES
    }

    /// A request came. Returns whether it is that of a client that came back.
    fn arrived(&mut self, owed: &mut u32) -> bool {
        let back = *owed > 0;
        *owed -= u32::from(back);
        if !self.several {
            return back;
        }
        self.fewest = if self.seen == 0 { *owed } else { self.fewest.min(*owed) };
        self.surprises += u32::from(!back);
        self.seen += 1;
        if self.seen == WINDOW {
            let clean = self.surprises == 0 && self.fewest == 0;
            self.clean = if clean { (self.clean + 1).min(PASSES) } else { 0 };
            // Clients that were expected all the time have gone.
            *owed -= self.fewest;
            (self.seen, self.surprises) = (0, 0);
        }
        back && self.clean >= PASSES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::OriginKind;

    const MS: Nanos = 1_000_000;

    fn peer(peer: u64) -> Origin {
        Origin { kind: OriginKind::Http, peer }
    }

    fn answered(returns: &mut Returns, now: Nanos, peers: impl Iterator<Item = u64>) {
        returns.batch(now);
        peers.for_each(|it| returns.answered(now, peer(it)));
        returns.batch_over(now);
    }

    fn expected(returns: &mut Returns, now: Nanos, within: Nanos) -> f64 {
        returns.close(now);
        let mut out = [Out::default(); OUT_MAX];
        returns.expected(returns.out(now, 0, &mut out), within)
    }

    /// Eight clients that come back half a millisecond after each answer, a few rounds long.
    fn closed_loop() -> Returns {
        let mut returns = Returns::default();
        for round in 0..20 {
            let now = round * 10 * MS;
            (0..8).for_each(|n| _ = returns.arrived(now + MS / 2, peer(n)));
            answered(&mut returns, now + 9 * MS, 0..8);
        }
        returns
    }

    #[test]
    fn clients_that_always_came_back_are_expected_until_all_are_here() {
        let mut returns = closed_loop();
        let now = 199 * MS;
        assert!((7.0..=8.0).contains(&expected(&mut returns, now, 5 * MS)));
        for n in 0..8 {
            assert!(returns.arrived(now + 2 * MS, peer(n)), "a return");
        }
        assert_eq!(expected(&mut returns, now + 2 * MS, 5 * MS), 0.0);
    }

    #[test]
    fn bodies_that_come_side_by_side_are_waited_for_as_long_as_each_takes() {
        let mut returns = Returns::default();
        for round in 0..64 {
            let start = round * 10 * MS;
            (0..16).for_each(|it| returns.announce(start + it * 10_000, peer(it)));
            (0..16).for_each(|it| _ = returns.arrived(start + 200_000 + it * 10_000, peer(it)));
        }
        let start = 1000 * MS;
        (0..16).for_each(|it| returns.announce(start + it * 10_000, peer(it)));
        let (later, far_later) = (start + 350_000, start + 10 * MS);
        let seen = [later, far_later].map(|now| returns.announced(now, MS));
        assert_eq!(seen, [16.0, 0.0], "each takes 0.2 ms");
    }

    #[test]
    fn a_client_is_away_until_its_whole_request_is_here() {
        let mut returns = Returns::default();
        answered(&mut returns, MS, 0..8);
        let mut seen = vec![returns.away(2 * MS)];
        returns.announce(2 * MS, peer(0));
        returns.announce(2 * MS, peer(1));
        seen.push(returns.away(2 * MS));
        returns.arrived(2 * MS + 10, peer(0));
        seen.push(returns.away(2 * MS + 10));
        returns.retract(peer(1));
        seen.push(returns.away(2 * MS + 20));
        assert_eq!(seen, [8, 8, 7, 6]);
    }

    #[test]
    fn new_clients_are_no_returns_and_clients_that_never_come_are_not_waited_for() {
        let mut returns = Returns::default();
        for n in 0..500 {
            assert!(!returns.arrived(n * MS, peer(n)));
            answered(&mut returns, n * MS, n..=n);
        }
        assert_eq!(expected(&mut returns, 500 * MS, 100 * MS), 0.0);
    }

    #[test]
    fn streams_of_one_connection_come_back_once_they_have_shown_that_they_do() {
        let mut returns = Returns::default();
        let mut counted = Vec::new();
        for round in 0..100 {
            let now = round * 10 * MS;
            counted = (0..3).map(|_| returns.arrived(now + MS, peer(7))).collect();
            answered(&mut returns, now + 9 * MS, [7; 3].into_iter());
        }
        assert_eq!(counted, [true; 3]);
        assert!((2.5..=3.0).contains(&expected(&mut returns, 999 * MS, 5 * MS)));
    }

    #[test]
    fn new_clients_behind_one_proxy_are_no_returns() {
        let (mut returns, mut dice, mut inside) = (Returns::default(), 1u64, 0);
        let (mut waited_for, mut counted) = (0.0, 0);
        for step in 0..20_000u64 {
            let now = step * MS / 10;
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            // Open arrivals, one in three steps; a batch of all who are inside ends now and then.
            if (dice >> 33).is_multiple_of(3) {
                counted += u32::from(returns.arrived(now, peer(7)));
                inside += 1;
            }
            if step.is_multiple_of(80) {
                let inside = std::mem::take(&mut inside);
                answered(&mut returns, now, (0..inside).map(|_| 7));
            }
            waited_for += expected(&mut returns, now, MS);
        }
        assert!(counted < 700, "{counted} of about 6700 arrivals");
        assert!(waited_for / 20_000.0 < 0.2, "{waited_for}");
    }

    #[test]
    fn requests_over_a_pool_of_connections_are_no_returns() {
        let (mut returns, mut dice, mut free) =
            (Returns::default(), 1u64, (0..64).collect::<Vec<_>>());
        let (mut inside, mut waited_for, mut counted) = (Vec::new(), 0.0, 0);
        for step in 0..20_000u64 {
            let now = step * MS / 10;
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            // Open arrivals over the connection that was freed last.
            if (dice >> 33).is_multiple_of(10)
                && let Some(connection) = free.pop()
            {
                counted += u32::from(returns.arrived(now, peer(connection)));
                inside.push(connection);
            }
            if step.is_multiple_of(60) {
                answered(&mut returns, now, inside.iter().copied());
                free.append(&mut inside);
            }
            waited_for += expected(&mut returns, now, MS);
        }
        assert!(counted < 100, "{counted} of about 2000 arrivals");
        assert!(waited_for / 20_000.0 < 0.1, "{waited_for}");
    }

    #[test]
    fn an_announced_request_is_expected_until_it_comes_or_is_retracted() {
        let mut returns = Returns::default();
        for n in 0..50 {
            returns.announce(n * 10 * MS, peer(1));
            returns.arrived(n * 10 * MS + 2 * MS, peer(1));
        }
        assert_eq!(returns.announced(500 * MS, 2 * MS), 0.0);
        returns.announce(500 * MS, peer(2));
        assert!(returns.announced(500 * MS, 2 * MS) > 0.9);
        assert_eq!(returns.announced(520 * MS, 2 * MS), 0.0, "its body is long overdue");
        returns.retract(peer(2));
        assert_eq!(returns.announced(500 * MS, 2 * MS), 0.0);
    }

    #[test]
    fn one_client_at_a_time_is_expected_back() {
        let (mut multiplex, mut owed) = (Multiplex::default(), 0);
        assert!(!multiplex.arrived(&mut owed), "no request was answered yet");
        for _ in 0..3 {
            owed += 1;
            assert!(multiplex.answered(owed));
            assert!(multiplex.arrived(&mut owed));
        }
    }

    #[test]
    fn a_set_of_clients_is_expected_back_after_two_windows_and_not_after_a_new_client() {
        let (mut multiplex, mut owed) = (Multiplex::default(), 0);
        let mut round = |clients: u32| {
            owed += 4;
            (0..4).for_each(|_| _ = multiplex.answered(owed));
            (0..clients).map(|_| multiplex.arrived(&mut owed)).filter(|&back| back).count()
        };
        assert_eq!((0..2 * WINDOW / 4 - 1).map(|_| round(4)).sum::<usize>(), 0);
        (0..WINDOW / 4).for_each(|_| _ = round(4));
        assert_eq!(round(4), 4);
        (0..2 * WINDOW / 5).for_each(|_| _ = round(5));
        assert_eq!(round(4), 0);
    }

    #[test]
    fn clients_that_have_gone_are_not_expected_for_ever() {
        let (mut multiplex, mut owed) = (Multiplex::default(), 10);
        multiplex.answered(owed);
        for _ in 0..4 * WINDOW {
            owed += 2;
            multiplex.answered(owed);
            (0..2).for_each(|_| _ = multiplex.arrived(&mut owed));
        }
        assert_eq!(owed, 0);
        assert_eq!(multiplex.clean, PASSES);
    }
}
