//! The adaptive policy in little stories. Workers take 5 ms and 1 ms per item unless told
//! otherwise, and the batcher has been taught so.

use std::collections::VecDeque;

use super::*;

const MS: Nanos = 1_000_000;

fn policy(objective: Option<Nanos>) -> Policy {
    Policy::Adaptive(Adaptive { objective, max_wait: None, delivery: 0, window: None })
}

/// A batcher that knows its curve, at a time by which it has forgotten how that was taught.
struct Taught {
    play: Play,
    now: Nanos,
    batches: u64,
}

impl Taught {
    fn new(config: Config, workers: u32) -> Self {
        Self::curve(config, workers, |items| 5 * MS + MS * items)
    }

    fn curve(config: Config, workers: u32, time: impl Fn(Nanos) -> Nanos) -> Self {
        let most = Nanos::from(config.max_items);
        let mut it = Self { play: Play::with(config, 1), now: 0, batches: 0 };
        for round in 0..40 * most {
            let items = round % most + 1;
            it.now += 10_000 * MS;
            let mut teacher = of_items(9, items as u32);
            teacher.origin.peer = 1_000_000 + round;
            it.play.skip(it.now, Event::Arrive(teacher));
            it.batches += 1;
            it.now += time(items);
            let done = Event::Done { batch: BatchId(it.batches), exec: time(items), prepare: None };
            it.play.skip(it.now, done);
        }
        (1..workers).for_each(|worker| it.play.up(it.now, worker));
        it
    }

    /// Tells what happens after so many milliseconds, with batches numbered from 1. Timers and
    /// the time to come back are left out.
    #[track_caller]
    fn step(&mut self, after: f64, event: Event, want: &[&str]) {
        let mut out = Actions::new();
        self.play.batcher.step(self.now + (after * MS as f64) as Nanos, event, &mut out);
        let told = out.iter().filter(|it| !matches!(it, Action::SetTimer(_) | Action::ClearTimer));
        let told = told.map(|action| self.renumber(say(action, &out)));
        assert_eq!(told.collect::<Vec<_>>(), want);
    }

    fn renumber(&self, words: String) -> String {
        let batch = words.strip_prefix('b').and_then(|words| words.split_once(' '));
        match batch {
            Some((number, rest)) => {
                format!("b{} {rest}", number.parse::<u64>().unwrap() - self.batches)
            }
            None => words.split(',').next().unwrap_or_default().to_owned(),
        }
    }

    #[track_caller]
    fn arrive(&mut self, after: f64, mut request: Request, want: &[&str]) {
        if request.deadline != Nanos::MAX {
            request.deadline += self.now;
        }
        self.step(after, Event::Arrive(request), want);
    }

    #[track_caller]
    fn done(&mut self, after: f64, batch: u64, items: Nanos, want: &[&str]) {
        self.ended(after, batch, 5 * MS + MS * items, want);
    }

    #[track_caller]
    fn ended(&mut self, after: f64, batch: u64, exec: Nanos, want: &[&str]) {
        let batch = BatchId(self.batches + batch);
        self.step(after, Event::Done { batch, exec, prepare: None }, want);
    }
}

fn alone(config: Config) -> Taught {
    Taught::new(Config { policy: policy(None), max_items: 8, ..config }, 1)
}

#[test]
fn at_low_load_no_request_waits() {
    let mut it = alone(Config::default());
    it.arrive(1000.0, request(0), &["b1 w0 [0] idle"]);
    it.arrive(1001.0, request(1), &[]);
    it.arrive(1002.0, request(2), &[]);
    it.done(1006.0, 1, 1, &["b2 w0 [1 2] idle"]);
}

#[test]
fn the_earliest_deadline_leads_however_late_it_came() {
    let mut it = alone(Config::default());
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    it.arrive(1.0, by(1, 500 * MS), &[]);
    it.arrive(2.0, by(2, 40 * MS), &[]);
    it.arrive(3.0, request(3), &[]);
    it.done(6.0, 1, 1, &["b2 w0 [2 1 3] idle"]);
}

#[test]
fn a_request_that_could_not_be_in_time_is_rejected_on_arrival() {
    let mut it = alone(Config::default());
    it.arrive(0.0, by(0, 5 * MS), &["0 Infeasible"]);
    it.arrive(0.0, by(1, 20 * MS), &["b1 w0 [1] idle"]);
    it.arrive(1.0, by(2, 9 * MS), &["2 Infeasible"]);
    it.arrive(1.0, by(3, 15 * MS), &[]);
}

#[test]
fn a_request_that_becomes_infeasible_is_rejected_before_its_deadline() {
    let mut it = alone(Config::default());
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    it.arrive(0.1, by(1, 14 * MS), &[]);
    it.step(7.0, Event::Timer, &[]);
    it.step(8.1, Event::Timer, &["1 Infeasible"]);
}

#[test]
fn the_objective_is_the_deadline_of_requests_without_one() {
    let config = Config { policy: policy(Some(11 * MS)), max_items: 8, ..Config::default() };
    let mut it = Taught::new(config, 1);
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    it.arrive(1.0, request(1), &["1 Infeasible"]);
    it.arrive(1.0, by(2, 90 * MS), &[]);
}

#[test]
fn what_was_learned_is_doubted_when_nothing_ran_for_a_while() {
    let mut it = alone(Config::default());
    it.arrive(400.0, by(0, 404 * MS), &["b1 w0 [0] deadline"]);
}

#[test]
fn a_newcomer_behind_more_full_batches_than_its_time_holds_is_rejected_at_once() {
    let mut it = alone(Config::default());
    let eight = |index| Request { deadline: 60 * MS, ..of_items(index, 8) };
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    (1..5).for_each(|index| it.arrive(0.5, eight(index), &[]));
    it.arrive(0.6, by(5, 60 * MS), &["5 Overload"]);
    it.arrive(0.6, by(6, 80 * MS), &[]);
}

#[test]
fn a_lone_request_is_not_rejected_because_the_first_batches_were_slow() {
    let config = Config { policy: policy(Some(50 * MS)), max_items: 8, ..Config::default() };
    let mut it = Taught { play: Play::with(config, 1), now: 0, batches: 0 };
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    it.ended(200.0, 1, 200 * MS, &[]);
    it.arrive(201.0, request(1), &["b2 w0 [1] deadline"]);
}

/// One of the clients that always come back.
fn client(index: u32) -> Request {
    let origin = Origin { kind: OriginKind::Http, peer: index.into() };
    Request { origin, ..request(index) }
}

/// Eight clients send, wait for their answers and send again, together; says when and how many
/// batches it took.
fn closed_loop(it: &mut Taught) -> (f64, u64) {
    let (mut at, mut batches) = (0.0, 0);
    for _ in 0..40 {
        at += 0.1;
        (0..8).for_each(|index| {
            let now = it.now + ((at + f64::from(index) * 0.01) * MS as f64) as Nanos;
            it.play.skip(now, Event::Arrive(client(index)));
        });
        while it.play.batcher.waiting() + it.play.batcher.running() > 0 {
            at += 13.0;
            let now = it.now + (at * MS as f64) as Nanos;
            batches += u64::from(it.play.batcher.running());
            let batch = BatchId(it.batches + batches);
            it.play.skip(now, Event::Done { batch, exec: 13 * MS, prepare: None });
        }
    }
    (at, batches)
}

#[test]
fn clients_that_come_back_together_are_waited_for_until_the_last_is_here() {
    let mut it = alone(Config::default());
    let (at, batches) = closed_loop(&mut it);
    for index in 0..7 {
        it.arrive(at + 0.1 + f64::from(index) * 0.01, client(index), &[]);
    }
    let all = format!("b{} w0 [0 1 2 3 4 5 6 7] full", batches + 1);
    it.arrive(at + 0.17, client(7), &[&all]);
}

#[test]
fn no_request_waits_longer_than_the_operator_allows() {
    let policy = Policy::Adaptive(Adaptive {
        objective: None,
        max_wait: Some(0),
        delivery: 0,
        window: None,
    });
    let mut it = Taught::new(Config { policy, max_items: 8, ..Config::default() }, 2);
    for index in 0..8 {
        let origin = Origin { kind: OriginKind::Http, peer: u64::from(index) + 7 };
        it.play.skip(it.now, Event::Arrive(Request { origin, ..request(index) }));
    }
    assert_eq!(it.play.batcher.running(), 2);
}

/// Taught as the others, and then given a window of 10 ms and an objective of 60 ms.
fn windowed() -> Taught {
    let mut it = alone(Config::default());
    let (objective, window) = (Some(60 * MS), Some(10 * MS));
    let policy = Policy::Adaptive(Adaptive { objective, window, ..Adaptive::default() });
    let config = Config { policy, max_items: 8, ..Config::default() };
    it.step(0.0, Event::Configure(config), &[]);
    it
}

#[test]
fn beside_a_window_nothing_else_decides_when_a_batch_goes() {
    let mut it = windowed();
    it.arrive(1.0, request(0), &[]);
    it.arrive(10.0, request(1), &[]);
    it.step(10.9, Event::Timer, &[]);
    it.step(11.0, Event::Timer, &["b1 w0 [0 1] window"]);
    (2..9).for_each(|index| it.arrive(12.0, request(index), &[]));
    it.done(18.0, 1, 2, &[]);
    it.arrive(19.0, request(9), &["b2 w0 [2 3 4 5 6 7 8 9] full"]);
    it.done(32.0, 2, 8, &[]);
    it.arrive(33.0, by(10, 49 * MS), &[]);
    it.step(37.0, Event::Timer, &[]);
    it.step(41.0, Event::Timer, &["b3 w0 [10] deadline"]);
}

#[test]
fn beside_a_window_a_request_that_would_be_late_is_rejected_at_once() {
    let mut it = windowed();
    it.arrive(0.0, of_items(0, 8), &["b1 w0 [0] full"]);
    (1..4).for_each(|index| it.arrive(0.5, of_items(index, 8), &[]));
    it.arrive(0.6, of_items(4, 8), &["4 Overload"]);
    it.arrive(0.6, by(5, 15 * MS), &["5 Infeasible"]);
    it.arrive(0.6, by(6, 80 * MS), &[]);
    it.done(13.0, 1, 8, &["b2 w0 [1] full"]);
}

#[test]
fn a_batch_that_just_crossed_a_step_ends_at_the_step() {
    let config = Config { policy: policy(None), max_items: 8, ..Config::default() };
    let time = |items| if items > 4 { 30 * MS } else { 5 * MS };
    let mut it = Taught::curve(config, 1, time);
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    (1..6).for_each(|index| it.arrive(1.0, request(index), &[]));
    it.ended(5.0, 1, 5 * MS, &["b2 w0 [1 2 3 4] idle"]);
    it.ended(10.0, 2, 5 * MS, &["b3 w0 [5] idle"]);
}

#[test]
fn bulk_is_added_where_there_is_room() {
    let mut it = alone(Config::default());
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    it.arrive(1.0, bulk(1), &[]);
    it.arrive(2.0, request(2), &[]);
    it.done(6.0, 1, 1, &["b2 w0 [2 1] idle"]);
}

#[test]
fn bulk_stays_behind_where_it_would_make_the_hurried_late() {
    let mut it = alone(Config::default());
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    it.arrive(1.0, bulk(1), &[]);
    it.arrive(2.0, bulk(2), &[]);
    it.arrive(3.0, by(3, 6 * MS + 7_500_000), &[]);
    it.done(6.0, 1, 1, &["b2 w0 [3 1] deadline"]);
}

#[test]
fn the_second_slot_is_filled_only_as_the_first_batch_ends() {
    let mut it = alone(Config::default());
    it.step(0.0, Event::WorkerUp { worker: WorkerId(0), slots: 2 }, &[]);
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    it.arrive(1.0, request(1), &[]);
    it.step(5.0, Event::Timer, &[]);
    it.step(6.0, Event::Timer, &["b2 w0 [1] idle"]);
}

#[test]
fn the_second_slot_is_filled_ahead_by_the_measured_handoff_and_no_more() {
    let mut it = alone(Config::default());
    it.step(0.0, Event::WorkerUp { worker: WorkerId(0), slots: 2 }, &[]);
    (0..400).for_each(|_| it.step(0.0, Event::Handed { took: MS / 2 }, &[]));
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    it.arrive(1.0, request(1), &[]);
    it.step(5.3, Event::Timer, &[]);
    it.step(5.6, Event::Timer, &["b2 w0 [1] idle"]);
    it.arrive(5.7, request(2), &[]);
    it.done(6.2, 1, 1, &[]);
    // The one ahead began when the first was over, later than was planned.
    it.step(11.6, Event::Timer, &[]);
    it.step(11.8, Event::Timer, &["b3 w0 [2] idle"]);
}

#[test]
fn no_batch_is_sent_ahead_to_a_worker_that_is_overdue_or_while_another_is_idle() {
    let mut it = alone(Config::default());
    it.step(0.0, Event::WorkerUp { worker: WorkerId(0), slots: 2 }, &[]);
    it.arrive(0.0, request(0), &["b1 w0 [0] idle"]);
    it.arrive(7.0, request(1), &[]);
    it.step(7.0, Event::WorkerUp { worker: WorkerId(1), slots: 2 }, &["b2 w1 [1] idle"]);
    it.done(8.0, 1, 1, &[]);
    it.arrive(12.9, request(2), &["b3 w0 [2] idle"]);
}

#[test]
fn a_batch_that_could_grow_is_not_sent_ahead_of_others_that_keep_coming() {
    let mut it = alone(Config::default());
    it.step(0.0, Event::WorkerUp { worker: WorkerId(0), slots: 2 }, &[]);
    let (mut runs, mut timer) = (VecDeque::new(), None);
    let (mut batch, mut sizes, mut left) = (it.batches, Vec::new(), 0);
    // In tenths of a millisecond.
    for tick in 0..40_000_u32 {
        let now = it.now + Nanos::from(tick) * MS / 10;
        let event = match runs.front() {
            Some(&(end, exec)) if end <= tick => {
                batch += 1;
                runs.pop_front();
                Event::Done { batch: BatchId(batch), exec, prepare: None }
            }
            // Before that nothing is sent ahead.
            _ if (20_000..20_500).contains(&tick) && tick % 2 == 0 => {
                Event::Handed { took: MS / 2 }
            }
            _ if tick % 20 == 1 => Event::Arrive(client(1000 + tick / 20)),
            _ if timer.is_some_and(|at| at <= now) => Event::Timer,
            _ => continue,
        };
        let mut out = Actions::new();
        it.play.batcher.step(now, event, &mut out);
        for action in out.iter() {
            match action {
                Action::SetTimer(at) => timer = Some(*at),
                Action::ClearTimer => timer = None,
                Action::Dispatch(Dispatch { items, .. }) => {
                    let start = runs.back().map_or(tick, |(end, _)| *end);
                    left = left.max(start - tick);
                    runs.push_back((start + 50 + 10 * items, 5 * MS + MS * u64::from(*items)));
                    sizes.push(*items);
                }
                Action::Reject { .. } | Action::Fail { .. } => panic!("{action:?}"),
            }
        }
    }
    assert!(sizes.len() > 300 && sizes.iter().all(|size| *size < 8), "{sizes:?}");
    assert!(left <= 2, "one was sent {left} tenths of a millisecond ahead, of 5 that it could");
}

#[test]
fn a_batch_that_could_grow_is_not_sent_ahead_of_clients_that_are_about_to_come_back() {
    let mut it = alone(Config::default());
    let (at, batches) = closed_loop(&mut it);
    it.step(at, Event::WorkerUp { worker: WorkerId(0), slots: 2 }, &[]);
    let all = format!("b{} w0 [0 1 2 3 4 5 6 7] full", batches + 1);
    (0..7).for_each(|index| it.arrive(at + 0.1, client(index), &[]));
    it.arrive(at + 0.1, client(7), &[&all]);
    (8..12).for_each(|index| it.arrive(at + 1.0, client(index), &[]));
    it.step(at + 13.1, Event::Timer, &[]);
    // Those who cannot take anybody along any more leave.
    (12..15).for_each(|index| it.arrive(at + 13.1, client(index), &[]));
    let next = format!("b{} w0 [8 9 10 11 12 13 14 15] full", batches + 2);
    it.arrive(at + 13.1, client(15), &[&next]);
}

#[test]
fn a_dispatch_carries_the_time_it_will_take_at_the_size_of_the_model() {
    let config = Config { sizes: vec![4, 8], ..Config::default() };
    let mut it = alone(config);
    let mut out = Actions::new();
    it.play.batcher.step(it.now, Event::Arrive(of_items(0, 3)), &mut out);
    let Some(Action::Dispatch(dispatch)) = out.iter().next() else { panic!("{out:?}") };
    assert_eq!(dispatch.items, 3);
    assert!(dispatch.predicted.is_some());
}

#[test]
fn a_full_queue_is_kept_at_the_cost_of_the_tenant_above_its_share() {
    let mut it = alone(Config { max_queue: 3, ..Config::default() });
    let of = |index, tenant| Request { tenant, ..request(index) };
    it.arrive(0.0, of(0, 1), &["b1 w0 [0] idle"]);
    (1..4).for_each(|index| it.arrive(1.0, of(index, 1), &[]));
    it.arrive(1.0, of(4, 2), &["3 Quota"]);
    it.arrive(1.0, of(5, 1), &["5 Quota"]);
}

#[test]
fn it_tells_its_curve_and_its_last_decisions() {
    let mut it = alone(Config::default());
    it.arrive(0.0, by(0, 2 * MS), &["0 Infeasible"]);
    it.arrive(0.0, request(1), &["b1 w0 [1] idle"]);
    let point = it.play.batcher.findings().curve().find(|point| point.size == 4).unwrap();
    assert!((point.mean as i64 - 9 * MS as i64).abs() < 1000, "{point:?}");
    let last: Vec<_> = it.play.batcher.findings().decisions().map(|it| it.kind).collect();
    let want =
        [DecisionKind::Reject(Rejection::Infeasible), DecisionKind::Dispatch(DispatchReason::Idle)];
    assert!(last.ends_with(&want), "{last:?}");
    assert!(last.len() <= 64);
}

/// Requests one by one, 20 ms each, then a burst of forty that takes 20 ms for every ten; says how
/// many were rejected.
fn rejected_of_a_burst(warm_up: u64) -> usize {
    let config = Config { policy: policy(Some(200 * MS)), max_items: 10, ..Config::default() };
    let mut batcher = Batcher::new(config);
    let (mut out, mut now, mut batch) = (Actions::new(), 0, 0);
    batcher.step(now, Event::WorkerUp { worker: WorkerId(0), slots: 1 }, &mut out);
    for _ in 0..warm_up {
        now += 21 * MS;
        batcher.step(now - 20 * MS, Event::Arrive(client(0)), &mut out);
        batch += 1;
        batcher.step(
            now,
            Event::Done { batch: BatchId(batch), exec: 20 * MS, prepare: None },
            &mut out,
        );
    }
    (1..=40).for_each(|index| batcher.step(now + 1, Event::Arrive(client(index)), &mut out));
    while batcher.running() + batcher.waiting() > 0 && batch < warm_up + 40 {
        now += 20 * MS;
        batch += 1;
        batcher.step(
            now,
            Event::Done { batch: BatchId(batch), exec: 20 * MS, prepare: None },
            &mut out,
        );
    }
    out.iter().filter(|action| matches!(action, Action::Reject { .. })).count()
}

#[test]
fn a_burst_is_not_rejected_while_the_time_of_a_larger_batch_is_unknown() {
    assert_eq!([1, 5, 20, 100].map(rejected_of_a_burst), [0; 4]);
}
