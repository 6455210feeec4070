//! The rules, one test each, told as little stories: an event, and what the batcher does about it.

mod adaptive;
mod configuration;
mod dispatches;
mod endings;
mod failures;
mod padding;
mod parts;
mod pins;
mod priorities;
mod stages;
mod timers;

use super::Batcher;
use crate::*;

const BULK: Priority = Priority::Bulk;
const WINDOW: Policy = Policy::Window { delay: 100 };

/// A batcher and its actions in words: `b1 w0 [0 1] full`, `b2 w1 [1] retry #2`, `0 expired`,
/// `1 failed Crashed`, `timer 100`, `no timer`.
struct Play {
    batcher: Batcher,
    config: Config,
}

impl Play {
    /// With a batch limit of `max_items` and workers `0..workers` of one slot each.
    fn new(policy: Policy, max_items: u32, workers: u32) -> Self {
        Self::with(Config { policy, max_items, ..Config::default() }, workers)
    }

    fn with(config: Config, workers: u32) -> Self {
        let mut play = Self { batcher: Batcher::new(config.clone()), config };
        for worker in 0..workers {
            play.up(0, worker);
        }
        play
    }

    #[track_caller]
    fn step(&mut self, now: Nanos, event: Event, want: &[&str]) {
        let mut out = Actions::new();
        self.batcher.step(now, event, &mut out);
        let said: Vec<_> = out.iter().map(|action| say(action, &out)).collect();
        assert_eq!(said, want);
    }

    /// An event whose actions do not matter to the story.
    fn skip(&mut self, now: Nanos, event: Event) {
        self.batcher.step(now, event, &mut Actions::new());
    }

    fn up(&mut self, now: Nanos, worker: u32) {
        self.skip(now, Event::WorkerUp { worker: WorkerId(worker), slots: 1 });
    }

    #[track_caller]
    fn arrive(&mut self, now: Nanos, index: u32, want: &[&str]) {
        self.step(now, Event::Arrive(request(index)), want);
    }

    /// Requests that must wait: the story begins when a worker comes.
    #[track_caller]
    fn queue(&mut self, now: Nanos, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            self.skip(now, Event::Arrive(request));
            let records = &self.batcher.state.records;
            assert!(records.find(request.id).is_some_and(|at| records[at].waits()));
        }
    }

    #[track_caller]
    fn done(&mut self, now: Nanos, batch: u64, want: &[&str]) {
        self.step(now, Event::Done { batch: BatchId(batch), exec: 10, prepare: None }, want);
    }

    #[track_caller]
    fn failed(&mut self, now: Nanos, batch: u64, kind: BatchFailure, want: &[&str]) {
        self.step(now, Event::Failed { batch: BatchId(batch), kind }, want);
    }

    #[track_caller]
    fn down(&mut self, now: Nanos, worker: u32, why: DownReason, want: &[&str]) {
        self.step(now, Event::WorkerDown { worker: WorkerId(worker), why }, want);
    }

    #[track_caller]
    fn cancel(&mut self, now: Nanos, index: u32, want: &[&str]) {
        self.step(now, Event::Cancel { id: RequestId::new(index, 0) }, want);
    }
}

fn request(index: u32) -> Request {
    Request::new(RequestId::new(index, 0))
}

fn bulk(index: u32) -> Request {
    Request { priority: BULK, ..request(index) }
}

fn by(index: u32, deadline: Nanos) -> Request {
    Request { deadline, ..request(index) }
}

fn of_items(index: u32, items: u32) -> Request {
    Request { items, ..request(index) }
}

fn from(index: u32, kind: OriginKind) -> Request {
    Request { origin: Origin { kind, peer: 0 }, ..request(index) }
}

fn say(action: &Action, out: &Actions) -> String {
    match action {
        Action::Dispatch(Dispatch { worker, batch, members, attempt, reason, .. }) => {
            let ids: Vec<_> =
                out.members(members).iter().map(|id| id.index().to_string()).collect();
            let again = if *attempt > 1 { format!(" #{attempt}") } else { String::new() };
            format!("b{} w{} [{}] {}{again}", batch.0, worker.0, ids.join(" "), reason.as_str())
        }
        Action::Reject { id, reason, retry_after } => {
            let after = retry_after.map(|time| format!(", retry after {time}"));
            format!("{} {reason:?}{}", id.index(), after.unwrap_or_default())
        }
        Action::Fail { id, kind } => format!("{} failed {kind:?}", id.index()),
        Action::SetTimer(time) => format!("timer {time}"),
        Action::ClearTimer => "no timer".to_owned(),
    }
}
