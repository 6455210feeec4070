//! What the batcher of a model version is asked with: its time, the sizes it may use, and when it wants to look again.
//!
//! The batcher decides and the task acts; this file holds only what passes between them.
//!
//! A worker that prepares batches while it works on another says itself how many it can hold. One that runs one batch after
//! another in a process of its own has a second slot under the adaptive policy, so that its next batch is there as the
//! last one ends. When a further slot is filled is the policy's decision.

use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::time::Duration;

use jitney_batcher::{Actions, Batcher, Config, DownReason, Event, Policy, WorkerId};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep, sleep_until};

use super::gpu_neighbours::GpuNeighbours;
use crate::gpu_assignment::GpuAnswers;
use crate::pool::WorkerCapacity;

/// The batcher, and what the task remembers for it.
pub(super) struct ModelScheduler {
    pub(super) batcher: Batcher,
    pub(super) clock: ModelClock,
    pub(super) sizes: AllowedSizes,
    /// Those who share the GPUs of its workers, once one of them is on a GPU.
    neighbours: Option<GpuNeighbours>,
    /// Whether the batcher still waits for a request that comes together with its last one.
    pub(super) undecided: bool,
    /// When the batcher wants to look again.
    pub(super) timer: Option<Instant>,
    /// The time for which the alarm has just rung.
    pub(super) rung: Option<Instant>,
}

impl ModelScheduler {
    pub(super) fn new(config: Config, clock: ModelClock) -> Self {
        Self {
            batcher: Batcher::new(config.clone()),
            clock,
            sizes: AllowedSizes::new(config),
            neighbours: None,
            undecided: false,
            timer: None,
            rung: None,
        }
    }

    /// Tells the batcher what happens, and what those have answered meanwhile who share a GPU with its workers.
    pub(super) fn step(&mut self, event: Event, out: &mut Actions) {
        let now = self.clock.now();
        let answered = self.neighbours.as_mut().map(GpuNeighbours::take);
        if let Some(items) = answered.filter(|items| *items > 0) {
            self.batcher.step(now, Event::NeighboursAnswered { items }, out);
        }
        self.batcher.step(now, event, out);
    }

    /// A worker serves, on a GPU where this was answered, or on none.
    pub(super) fn worker_serves(&mut self, worker: u32, answers: Option<GpuAnswers>) {
        if let Some(answers) = answers {
            self.neighbours.get_or_insert_default().join(worker, answers);
        }
    }

    /// A worker has answered so many items.
    pub(super) fn worker_answered(&mut self, worker: u32, items: u32) {
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.answered(worker, items);
        }
    }

    /// A worker gets nothing more.
    pub(super) fn worker_gone(&mut self, worker: u32) {
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.leave(worker);
        }
    }

    pub(super) fn is_adaptive(&self) -> bool {
        matches!(self.batcher.config().policy, Policy::Adaptive(_))
    }
}

/// The time of one model version as its batcher counts it: nanoseconds since the model was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelClock {
    start: Instant,
}

impl ModelClock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(super) fn now(self) -> u64 {
        self.nanos(Instant::now())
    }

    pub(super) fn nanos(self, instant: Instant) -> u64 {
        u64::try_from(instant.duration_since(self.start).as_nanos()).unwrap_or(u64::MAX)
    }

    /// A deadline as the batcher has it: no deadline is the end of time.
    pub(super) fn deadline(self, deadline: Option<Instant>) -> u64 {
        deadline.map_or(u64::MAX, |deadline| self.nanos(deadline))
    }

    pub(super) fn instant(self, nanos: u64) -> Instant {
        self.start + Duration::from_nanos(nanos)
    }
}

/// The batch sizes at which a model runs: those that its operator set, else those that its workers say when they have
/// loaded it.
#[derive(Debug)]
pub(super) struct AllowedSizes {
    /// The batcher's configuration as the settings have it.
    settings: Config,
    /// What the last worker said that said something.
    reported: Vec<u32>,
}

impl AllowedSizes {
    pub(super) fn new(settings: Config) -> Self {
        Self { settings, reported: Vec::new() }
    }

    /// The settings have changed: the configuration that is to be in force.
    pub(super) fn configure(&mut self, settings: Config) -> Config {
        self.settings = settings;
        self.config()
    }

    /// A worker says at which sizes it runs the model: the configuration that is to be in force, if that
    /// changes it.
    pub(super) fn report(&mut self, sizes: &[u32]) -> Option<Config> {
        if sizes.is_empty() || self.reported == sizes {
            return None;
        }
        self.reported = sizes.to_vec();
        self.settings.sizes.is_empty().then(|| self.config())
    }

    fn config(&self) -> Config {
        let mut config = self.settings.clone();
        if config.sizes.is_empty() {
            config.sizes.clone_from(&self.reported);
        }
        config
    }
}

/// What happened to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotChange {
    /// It may have batches, or another number of them.
    Up,
    /// It may have one at a time.
    Single,
    /// It gets nothing more.
    Retired,
    /// It is gone.
    Down(DownReason),
}

impl SlotChange {
    /// What the batcher is told of it; `early` if a worker that runs one batch after another may be given its next
    /// one just before the last one ends.
    pub(super) fn event(self, worker: u32, capacity: WorkerCapacity, early: bool) -> Event {
        let worker = WorkerId(worker);
        match self {
            Self::Up => {
                let more = u8::from(early && capacity.ahead());
                Event::WorkerUp { worker, slots: capacity.slots.saturating_add(more) }
            }
            Self::Single => Event::WorkerUp { worker, slots: 1 },
            Self::Retired => Event::WorkerRetire { worker },
            Self::Down(why) => Event::WorkerDown { worker, why },
        }
    }
}

/// The clock of a model's task: rings once, at the time that was set last.
///
/// The runtime's timers have ticks of a millisecond, which is as long as an answer takes to turn into
/// the next batch. Under the adaptive policy a timer of the kernel's is used, which is exact to some
/// ten microseconds; where there is none, and on the virtual clock of tests, the runtime's.
pub(super) struct Alarm {
    /// What it is set to; none once it has rung.
    at: Option<Instant>,
    /// Which of the two timers is set.
    exact: bool,
    coarse: Pin<Box<Sleep>>,
    fine: Fine,
}

/// The kernel's timer, opened when it is first needed.
enum Fine {
    Unopened,
    Open(AsyncFd<OwnedFd>),
    Missing,
}

impl Alarm {
    pub(super) fn new() -> Self {
        // The virtual clock knows nothing of the kernel's.
        let fine = if cfg!(test) { Fine::Missing } else { Fine::Unopened };
        Self { at: None, exact: false, coarse: Box::pin(sleep_until(Instant::now())), fine }
    }

    /// Sets it, or takes it back; `exact` asks for more than a tick of a millisecond.
    pub(super) fn set(&mut self, at: Option<Instant>, exact: bool) {
        let Some(time) = at.filter(|_| self.at != at) else {
            self.at = at;
            return;
        };
        self.at = at;
        self.exact = exact && self.fine.set(time);
        if !self.exact {
            self.coarse.as_mut().reset(time);
        }
    }

    /// Waits until it rings and says for when it was set. Nothing is lost if it is not waited for.
    pub(super) async fn rings(&mut self) -> Instant {
        let Some(at) = self.at else { return std::future::pending().await };
        match &self.fine {
            Fine::Open(timer) if self.exact => expired(timer).await,
            Fine::Open(_) | Fine::Unopened | Fine::Missing => self.coarse.as_mut().await,
        }
        self.at = None;
        at
    }
}

impl Fine {
    /// Sets the timer; false if there is none.
    fn set(&mut self, at: Instant) -> bool {
        if matches!(self, Self::Unopened) {
            *self = open().map_or(Self::Missing, Self::Open);
        }
        match self {
            Self::Open(timer) => arm(timer, at),
            Self::Unopened | Self::Missing => false,
        }
    }
}

#[expect(deprecated, reason = "what replaces it is unsafe; a descriptor that is owned stays valid")]
fn open() -> Option<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags).ok()?).ok()
}

fn arm(timer: &AsyncFd<OwnedFd>, at: Instant) -> bool {
    let left = at.saturating_duration_since(Instant::now());
    // Nothing at all would disarm it.
    let nanos = i64::from(left.subsec_nanos()).max(i64::from(left.as_secs() == 0));
    let Ok(seconds) = i64::try_from(left.as_secs()) else { return false };
    let once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let spec = Itimerspec { it_interval: once, it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &spec).is_ok()
}

/// Waits until the timer has run off. A ring that was meant for an earlier setting is gone from the
/// kernel, and found to be so here.
async fn expired(timer: &AsyncFd<OwnedFd>) {
    loop {
        let Ok(mut ready) = timer.readable().await else { return };
        let read = |timer: &AsyncFd<OwnedFd>| Ok(rustix::io::read(timer, &mut [0; 8])?);
        if ready.try_io(read).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::BatchOrder;

    #[test]
    fn what_workers_say_counts_where_the_operator_says_nothing() {
        let base = Config { max_items: 8, ..Config::default() };
        let mut sizes = AllowedSizes::new(base.clone());
        assert_eq!(sizes.report(&[]), None);
        let config = sizes.report(&[1, 2, 8]).expect("a change");
        assert_eq!((config.sizes, config.max_items), (vec![1, 2, 8], 8));
        assert_eq!(sizes.report(&[1, 2, 8]), None, "no change");
        let set = Config { sizes: vec![4], ..base.clone() };
        assert_eq!(sizes.configure(set).sizes, [4]);
        assert_eq!(sizes.report(&[1, 8]), None);
        assert_eq!(sizes.configure(base).sizes, [1, 8], "the operator takes it back");
    }

    fn told(capacity: WorkerCapacity, early: bool) -> u8 {
        let event = SlotChange::Up.event(2, capacity, early);
        let Event::WorkerUp { worker: WorkerId(2), slots } = event else { panic!("{event:?}") };
        slots
    }

    #[test]
    fn a_worker_that_runs_one_batch_after_another_may_have_a_second_slot() {
        let capacity = WorkerCapacity { slots: 1, order: BatchOrder::Sequential };
        assert_eq!(told(capacity, true), 2);
        assert_eq!(told(capacity, false), 1);
        assert_eq!(told(WorkerCapacity::usual(1), true), 1);
    }

    #[test]
    fn a_worker_that_overlaps_its_batches_is_one_with_as_many_slots_as_it_says() {
        let capacity = WorkerCapacity { slots: 3, order: BatchOrder::Overlapping };
        assert_eq!([true, false].map(|early| told(capacity, early)), [3, 3]);
    }
}
