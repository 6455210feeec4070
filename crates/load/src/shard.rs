//! One thread's share of the load: its clients or its pools, its connections, and its counts.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local, yield_now};
use tokio::time::Instant;

use crate::answer::{Exchange, ExchangeFailure};
use crate::connection::{ConnectionMaker, LoadConnection};
use crate::dial::Dialer;
use crate::exact_timer::ExactTimer;
use crate::live::{LiveWindow, Stop};
use crate::payload::RequestPayload;
use crate::plan::{LoadMode, LoadPhase, LoadPlan, PoolPlan, ThinkTime};
use crate::pool::{ConnectionPool, PoolChoice};
use crate::tally::{Tally, exact, nanos};
use crate::timeline::Timeline;

/// A client whose request failed pauses, so that a server that is gone is not asked all the time.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(10);
/// Requests that are late are sent in a row; then answers have their turn.
const IN_A_ROW: usize = 16;

/// What the threads share.
pub(crate) struct ShardPlan {
    pub(crate) plan: Arc<LoadPlan>,
    /// Which thread it is.
    pub(crate) number: usize,
    pub(crate) start: Instant,
    pub(crate) stop: Stop,
    /// Requests that are still to be sent, where their number is given.
    pub(crate) left: Arc<AtomicU64>,
}

/// What a thread counted.
pub(crate) struct ShardRecord {
    /// One for every phase that counts.
    pub(crate) tallies: Vec<Tally>,
    pub(crate) timeline: Timeline,
    /// How late requests were sent.
    pub(crate) lag: Histogram<u64>,
    pub(crate) opened: u64,
    /// Requests that ended, those that do not count included.
    pub(crate) ended: u64,
}

pub(crate) struct Shard {
    share: ShardPlan,
    dialer: Rc<Dialer>,
    maker: ConnectionMaker,
    record: RefCell<ShardRecord>,
    window: RefCell<Option<LiveWindow>>,
    next_payload: Cell<usize>,
    under_way: Cell<usize>,
    idle: Notify,
}

/// A request that is due.
#[derive(Clone, Copy, Debug)]
struct LoadJob {
    due: Instant,
    /// The phase it counts for, when it was due in it, and from the first phase that counts.
    counts: Option<(usize, Duration, Duration)>,
}

type JobPool = ConnectionPool<LoadConnection, LoadJob>;

impl Shard {
    pub(crate) fn new(share: ShardPlan, watched: bool) -> Self {
        let dialer = Rc::new(Dialer::new(share.plan.target.clone()));
        let maker = ConnectionMaker::new(Rc::clone(&dialer), share.plan.streams);
        let counted = match &share.plan.mode {
            LoadMode::Closed { .. } => 1,
            LoadMode::Open { phases, .. } => phases.iter().filter(|phase| phase.counted).count(),
        };
        let record = ShardRecord {
            tallies: (0..counted).map(|_| Tally::new()).collect(),
            timeline: Timeline::new(),
            lag: exact(),
            opened: 0,
            ended: 0,
        };
        Self {
            next_payload: Cell::new(share.number),
            share,
            dialer,
            maker,
            record: RefCell::new(record),
            window: RefCell::new(watched.then(LiveWindow::default)),
            under_way: Cell::new(0),
            idle: Notify::new(),
        }
    }

    /// What happened since it was asked last.
    pub(crate) fn window(&self) -> LiveWindow {
        self.window.borrow_mut().replace(LiveWindow::default()).unwrap_or_default()
    }

    /// Sends its share and waits for the answers.
    pub(crate) async fn run(self: Rc<Self>) -> io::Result<()> {
        let plan = Arc::clone(&self.share.plan);
        match &plan.mode {
            LoadMode::Closed { clients, .. } => {
                let own = (0..*clients)
                    .filter(|client| client / plan.streams % plan.threads == self.share.number);
                let clients: Vec<JoinHandle<_>> = own
                    .enumerate()
                    .map(|(at, client)| spawn_local(Rc::clone(&self).client(at, client)))
                    .collect();
                for client in clients {
                    client.await??;
                }
                Ok(())
            }
            LoadMode::Open { phases, pool } => self.open(phases, *pool).await,
        }
    }

    /// The counts, at the end.
    pub(crate) fn into_record(self: Rc<Self>) -> ShardRecord {
        let empty = ShardRecord {
            tallies: Vec::new(),
            timeline: Timeline::new(),
            lag: exact(),
            opened: 0,
            ended: 0,
        };
        let mut record = self.record.replace(empty);
        record.opened = self.dialer.opened();
        record
    }

    fn payload(&self) -> &RequestPayload {
        let (at, payloads) = (self.next_payload.get(), &self.share.plan.payloads);
        self.next_payload.set(at.wrapping_add(1));
        &payloads[at % payloads.len()]
    }

    /// A client of a closed loop.
    async fn client(self: Rc<Self>, at: usize, number: usize) -> io::Result<()> {
        let plan = &self.share.plan;
        let LoadMode::Closed { think, warm_up, length, requests, .. } = &plan.mode else {
            return Ok(());
        };
        let counted_from = self.share.start + *warm_up;
        let end = requests.is_none().then_some(counted_from + *length);
        let timer = ExactTimer::new()?;
        let mut chance = fastrand::Rng::with_seed(plan.seed.wrapping_add(number as u64));
        let mut connection = self.maker.make(at);
        let mut due = timer.until(self.share.start).await;
        while self.may_send(due, counted_from, end) {
            let exchange = connection.exchange(self.payload(), due + plan.timeout).await;
            let now = Instant::now();
            self.client_ended(due, now, &exchange, counted_from, end);
            due = now;
            if exchange.ending.is_failure() {
                due = timer.until(now + PAUSE_AFTER_FAILURE).await;
            }
            if let Some(think) = think {
                due = self.after_thinking(due, *think, &mut chance, &timer).await;
            }
        }
        Ok(())
    }

    async fn after_thinking(
        &self,
        now: Instant,
        think: ThinkTime,
        chance: &mut fastrand::Rng,
        timer: &ExactTimer,
    ) -> Instant {
        let due = now + think.draw(chance);
        let late = timer.until(due).await - due;
        self.record.borrow_mut().lag.saturating_record(nanos(late));
        due
    }

    fn may_send(&self, now: Instant, counted_from: Instant, end: Option<Instant>) -> bool {
        if self.share.stop.is_set() {
            return false;
        }
        match end {
            Some(end) => now < end,
            None if now < counted_from => true,
            None => {
                let one_less = |left: u64| left.checked_sub(1);
                self.share.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
            }
        }
    }

    /// An answer counts if it came within the time that counts, so that the rate is right at both
    /// ends; a failure counts if the request began in it.
    fn client_ended(
        &self,
        due: Instant,
        now: Instant,
        exchange: &Exchange,
        counted_from: Instant,
        end: Option<Instant>,
    ) {
        let counted = match end {
            Some(end) => now >= counted_from && (now < end || exchange.ending.is_failure()),
            None => due >= counted_from,
        };
        let since = due.saturating_duration_since(counted_from);
        let counts = counted.then_some((0, since, since));
        if counted {
            self.record.borrow_mut().tallies[0].offered += 1;
        }
        self.ended(LoadJob { due, counts }, now, exchange);
    }

    /// An open loop: every request at its time.
    async fn open(self: Rc<Self>, phases: &[LoadPhase], plan: PoolPlan) -> io::Result<()> {
        let LoadPlan { seed, threads, .. } = *self.share.plan;
        let pools = |number: usize| {
            Rc::new(RefCell::new(JobPool::new(
                plan.order,
                plan.limit,
                seed.wrapping_add(number as u64),
            )))
        };
        let pools: Vec<Rc<RefCell<JobPool>>> = (0..plan.pools).map(pools).collect();
        let timer = ExactTimer::new()?;
        // All threads draw the same pools and send what falls to their own.
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut start = self.share.start;
        let (mut counted, mut counted_from) = (0, None);
        let mut in_a_row = 0;
        for phase in phases {
            if phase.counted && counted_from.is_none() {
                counted_from = Some(start);
            }
            for nanos in &phase.due {
                let number = if plan.pools == 1 { 0 } else { chance.usize(..plan.pools) };
                if number % threads != self.share.number {
                    continue;
                }
                let since = Duration::from_nanos(*nanos);
                let due = start + since;
                in_a_row = if Instant::now() < due { 0 } else { in_a_row + 1 };
                if in_a_row == IN_A_ROW {
                    in_a_row = 0;
                    yield_now().await;
                }
                let late = timer.until(due).await - due;
                if self.share.stop.is_set() {
                    return self.all_ended().await;
                }
                let origin = counted_from.filter(|_| phase.counted);
                let counts = origin.map(|from| (counted, since, due - from));
                self.send(LoadJob { due, counts }, late, number * plan.limit, &pools[number]);
            }
            start += phase.length;
            counted += usize::from(phase.counted);
        }
        self.all_ended().await
    }

    fn send(
        self: &Rc<Self>,
        job: LoadJob,
        late: Duration,
        first: usize,
        pool: &Rc<RefCell<JobPool>>,
    ) {
        if let Some((phase, ..)) = job.counts {
            let mut record = self.record.borrow_mut();
            record.tallies[phase].offered += 1;
            record.lag.saturating_record(nanos(late));
        }
        self.under_way.set(self.under_way.get() + 1);
        let choice = pool.borrow_mut().take(job);
        let (connection, job) = match choice {
            PoolChoice::Use(connection, job) => (connection, job),
            PoolChoice::Open(number, job) => (self.maker.make(first + number), job),
            PoolChoice::Wait => return,
        };
        spawn_local(Rc::clone(self).carry(connection, job, Rc::clone(pool)));
    }

    /// Carries a request, and those that wait for its connection, to their ends.
    async fn carry(
        self: Rc<Self>,
        mut connection: LoadConnection,
        mut job: LoadJob,
        pool: Rc<RefCell<JobPool>>,
    ) {
        loop {
            let until = job.due + self.share.plan.timeout;
            let exchange = if Instant::now() < until {
                connection.exchange(self.payload(), until).await
            } else {
                Exchange::failed(ExchangeFailure::NeverSent)
            };
            self.ended(job, Instant::now(), &exchange);
            self.under_way.set(self.under_way.get() - 1);
            let next = pool.borrow_mut().give_back(connection);
            match next {
                Some(waiting) => (connection, job) = waiting,
                None => break,
            }
        }
        if self.under_way.get() == 0 {
            self.idle.notify_one();
        }
    }

    async fn all_ended(&self) -> io::Result<()> {
        while self.under_way.get() > 0 {
            self.idle.notified().await;
        }
        Ok(())
    }

    fn ended(&self, job: LoadJob, now: Instant, exchange: &Exchange) {
        let took = now.saturating_duration_since(job.due);
        let mut record = self.record.borrow_mut();
        record.ended += 1;
        if let Some((phase, due, at)) = job.counts {
            record.tallies[phase].record(due, took, exchange, self.share.plan.objective);
            record.timeline.record(at, took, exchange.ending);
        }
        if let Some(window) = &mut *self.window.borrow_mut() {
            window.record(took, exchange.ending);
        }
    }
}
