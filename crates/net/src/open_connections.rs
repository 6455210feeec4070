//! The open connections of a plane: how many there may be, how long each has been idle, and which one is
//! closed to make room for a new client.
//!
//! A request costs two atomic stores here: the lock of the table is taken only where a connection opens,
//! closes, or is looked for. Times are ticks of the plane's own clock, which the accept loops advance
//! about once a second, so that no request reads a clock.
//!
//! When the plane is full, the connection that has been idle longest is asked to close. While none has been
//! idle long enough, answers tell their clients to close the connection, which no client mistakes for an
//! error, and new clients wait in the system's backlog.

use std::cmp::Reverse;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use slab::Slab;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::log_limit::LogLimit;

/// How often the clock is advanced.
pub const TICK: Duration = Duration::from_secs(1);

/// A connection makes room for another after so many ticks without a request: its client is hardly about to
/// send one, and would see the connection end instead of an answer.
const IDLE_TICKS_MIN: u32 = 2;

/// The same where another server has the port and only a client that is slow can lose a request.
const RETIRING_TICKS_MIN: u32 = 5;

/// How many connections one search finds; the next ones to close are taken from them.
const FOUND_MAX: usize = 32;

/// Memory is given back when so many connections have gone, for so many ticks.
const GIVE_BACK_MIN: usize = 500;
const GIVE_BACK_TICKS: u32 = 8;
/// Larger than the allocator's own pages.
const GIVE_BACK_BYTES: usize = 4 << 20;

/// The tick of a connection with a request under way.
const BUSY: u32 = u32::MAX;

/// The open connections of a plane.
#[derive(Debug)]
pub struct OpenConnections {
    permits: Arc<Semaphore>,
    /// How many there may be.
    limit: usize,
    idle_ticks_max: u32,
    started: Instant,
    ticks: AtomicU32,
    /// The most connections since memory was last given back, and until when it is.
    most: AtomicUsize,
    give_back_until: AtomicU32,
    /// Accept loops that wait for room.
    waiting: AtomicUsize,
    /// Whether the connections with streams were asked to close, because the server drains.
    drains: AtomicBool,
    table: Mutex<ConnectionTable>,
    /// For errors of accepting.
    pub accept_errors: LogLimit,
    /// For the messages about handshakes that failed.
    pub handshake_errors: LogLimit,
    /// For requests that are not valid HTTP.
    pub malformed: LogLimit,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    open: Slab<Arc<OpenConnection>>,
    /// What the last search found and since when it is idle, the longest idle one last.
    found: Vec<(u32, Arc<OpenConnection>)>,
}

impl OpenConnections {
    /// Room for so many connections, which may be idle so long.
    pub fn new(limit: usize, idle_timeout: Duration) -> Arc<Self> {
        let ticks = idle_timeout.as_secs().div_ceil(TICK.as_secs());
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            limit,
            idle_ticks_max: u32::try_from(ticks).unwrap_or(BUSY),
            started: Instant::now(),
            ticks: AtomicU32::new(0),
            most: AtomicUsize::new(0),
            give_back_until: AtomicU32::new(0),
            waiting: AtomicUsize::new(0),
            drains: AtomicBool::new(false),
            table: Mutex::default(),
            accept_errors: LogLimit::default(),
            handshake_errors: LogLimit::default(),
            malformed: LogLimit::default(),
        })
    }

    /// The permit for one more connection. When there is none, the longest idle connection is asked to
    /// close. May be dropped while it waits, and asked again at the next tick.
    pub async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(permit);
        }
        let _waiting = (!self.close_longest_idle()).then(|| WaitingForRoom::new(&self.waiting));
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// Lists a connection that was accepted. It counts as idle until it has sent a request.
    pub fn list(self: &Arc<Self>, number: u64, permit: OwnedSemaphorePermit) -> ListedConnection {
        let open = Arc::new(OpenConnection {
            number,
            idle_since: AtomicU32::new(self.ticks.load(Relaxed)),
            closing: AtomicBool::new(false),
            called: AtomicBool::new(false),
            has_streams: AtomicBool::new(false),
            silent_since: AtomicU64::new(0),
            incomplete: AtomicBool::new(false),
            waker: OnceLock::new(),
            plane: Arc::clone(self),
        });
        let key = self.table().open.insert(Arc::clone(&open));
        ListedConnection { open, key, _permit: permit }
    }

    /// How many there may be.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.table().open.len()
    }

    /// Advances the clock, and calls the connections on which a request is not complete.
    pub fn tick(&self) {
        let ticks = self.started.elapsed().as_secs() / TICK.as_secs();
        let now = u32::try_from(ticks).unwrap_or(BUSY - 1);
        // Every loop of the plane has this clock.
        if self.ticks.swap(now, Relaxed) != now {
            let table = self.table();
            self.give_back(now, table.open.len());
            let waiting = table.open.iter().map(|(_, connection)| connection);
            waiting.filter(|open| open.incomplete.load(Relaxed)).for_each(|open| open.call());
        }
    }

    /// Calls all connections, to look at what their listener tells them.
    pub fn call_all(&self) {
        self.table().open.iter().for_each(|(_, connection)| connection.call());
    }

    /// Asks the connections with streams to close, once: the server drains, and their clients must learn it
    /// before their next request. Those that come later close after their first answer, and those without
    /// streams with their next.
    pub fn drain(&self) {
        if !self.drains.swap(true, Relaxed) {
            let table = self.table();
            let open = table.open.iter().map(|(_, connection)| connection);
            open.filter(|open| open.has_streams.load(Relaxed)).for_each(|open| {
                open.ask_to_close();
            });
        }
    }

    /// Lets every answer end its connection while the guard lives, as if others waited for room.
    pub fn end_with_answers(&self) -> impl Drop + '_ {
        WaitingForRoom::new(&self.waiting)
    }

    /// Asks the connections to close whose clients can go to another server without losing a request: those with
    /// streams, which end in order, and those that are idle.
    pub fn close_retiring(&self) {
        let latest = self.ticks.load(Relaxed).checked_sub(RETIRING_TICKS_MIN);
        for (_, connection) in &self.table().open {
            let since = connection.idle_since.load(Relaxed);
            let idle = latest.is_some_and(|latest| since <= latest) && !connection.is_incomplete();
            if idle || connection.has_streams.load(Relaxed) {
                connection.ask_to_close();
            }
        }
    }

    /// Asks the connections to close that were accepted so long ago and have sent nothing.
    pub fn close_silent(&self, after: Duration) {
        let now = self.age_millis();
        let latest = now.saturating_sub(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        for (_, connection) in &self.table().open {
            if (1..=latest).contains(&connection.silent_since.load(Relaxed)) {
                connection.ask_to_close();
            }
        }
    }

    /// Gives the memory of many connections back that have gone.
    fn give_back(&self, now: u32, open: usize) {
        let most = self.most.load(Relaxed).max(open);
        let gone = most - open >= GIVE_BACK_MIN;
        self.most.store(if gone { open } else { most }, Relaxed);
        if gone {
            self.give_back_until.store(now.saturating_add(GIVE_BACK_TICKS), Relaxed);
        }
        if now <= self.give_back_until.load(Relaxed) {
            // The allocator keeps what was freed for a while, and looks whether that is over only when
            // memory of this size comes and goes. It is not touched.
            drop(std::hint::black_box(Vec::<u8>::with_capacity(GIVE_BACK_BYTES)));
        }
    }

    /// Never zero.
    fn age_millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Asks the connections to close that have been idle for too long.
    pub fn close_timed_out(&self) {
        let Some(latest) = self.ticks.load(Relaxed).checked_sub(self.idle_ticks_max) else {
            return;
        };
        for (_, connection) in &self.table().open {
            if connection.idle_since.load(Relaxed) <= latest {
                connection.ask_to_close();
            }
        }
    }

    /// Asks the connection to close that has been idle longest, if any has been idle long enough.
    pub fn close_longest_idle(&self) -> bool {
        let Some(latest) = self.ticks.load(Relaxed).checked_sub(IDLE_TICKS_MIN) else {
            return false;
        };
        let mut table = self.table();
        table.close_found() || {
            table.search(latest);
            table.close_found()
        }
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionTable {
    fn search(&mut self, latest: u32) {
        let since = |connection: &OpenConnection| connection.idle_since.load(Relaxed);
        let idle = self.open.iter().map(|(_, connection)| (since(connection), connection));
        let mut idle: Vec<_> = idle
            .filter(|(since, connection)| *since <= latest && !connection.closing.load(Relaxed))
            .collect();
        let order = |(since, connection): &(u32, &Arc<OpenConnection>)| (*since, connection.number);
        if idle.len() > FOUND_MAX {
            idle.select_nth_unstable_by_key(FOUND_MAX, order);
            idle.truncate(FOUND_MAX);
        }
        idle.sort_unstable_by_key(|found| Reverse(order(found)));
        self.found =
            idle.into_iter().map(|(since, connection)| (since, Arc::clone(connection))).collect();
    }

    /// Closes the first of those found that has stayed idle since.
    fn close_found(&mut self) -> bool {
        while let Some((since, connection)) = self.found.pop() {
            if connection.idle_since.load(Relaxed) == since && connection.ask_to_close() {
                return true;
            }
        }
        false
    }
}

/// Counts an accept loop that waits for room.
struct WaitingForRoom<'a>(&'a AtomicUsize);

impl<'a> WaitingForRoom<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Relaxed);
        Self(waiting)
    }
}

impl Drop for WaitingForRoom<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A connection in the table.
#[derive(Debug)]
pub struct OpenConnection {
    number: u64,
    /// The tick at which its last request ended.
    idle_since: AtomicU32,
    closing: AtomicBool,
    /// Whether it should look at its listener's signals, and whether its request has come too slowly.
    called: AtomicBool,
    /// Whether requests come in streams, any number at a time: HTTP/2.
    has_streams: AtomicBool,
    /// Since when its first request is awaited, in milliseconds of the plane's age; 0 once bytes came.
    silent_since: AtomicU64,
    /// Whether a part of a request has come, and hyper does not know of it yet.
    incomplete: AtomicBool,
    /// Wakes the connection's task, which always is the same one.
    waker: OnceLock<Waker>,
    /// Those that it is one of.
    pub plane: Arc<OpenConnections>,
}

impl OpenConnection {
    #[cfg(test)]
    pub(crate) fn alone() -> Arc<Self> {
        let plane = OpenConnections::new(1, Duration::MAX);
        let permit = Arc::clone(&plane.permits).try_acquire_owned().unwrap();
        Arc::clone(&plane.list(1, permit).open)
    }

    /// Notes that a request is under way.
    pub fn note_busy(&self) {
        self.idle_since.store(BUSY, Relaxed);
    }

    /// Notes that no request is under way any more.
    pub fn note_idle(&self) {
        self.idle_since.store(self.plane.ticks.load(Relaxed), Relaxed);
    }

    /// Notes that its requests come in streams.
    pub fn set_streams(&self) {
        self.has_streams.store(true, Relaxed);
    }

    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        self.idle_since.load(Relaxed) != BUSY
    }

    /// Whether the connection should end with its answer, because new clients wait for room.
    pub fn is_needed(&self) -> bool {
        self.plane.waiting.load(Relaxed) != 0
    }

    /// Notes that the first request is awaited, or that bytes of it came.
    pub fn set_silent(&self, silent: bool) {
        let since = if silent { self.plane.age_millis() } else { 0 };
        self.silent_since.store(since, Relaxed);
    }

    /// Notes whether a request has come in part.
    pub fn set_incomplete(&self, incomplete: bool) {
        self.incomplete.store(incomplete, Relaxed);
    }

    /// Whether a request has come in part.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete.load(Relaxed)
    }

    /// Whether the connection was asked to close.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// Whether the connection was called since it last asked. Its task is woken when it is called or asked to
    /// close.
    pub fn was_called(&self, context: &Context<'_>) -> bool {
        self.waker.get_or_init(|| context.waker().clone());
        self.called.load(Relaxed) && self.called.swap(false, Relaxed)
    }

    fn call(&self) {
        self.called.store(true, Relaxed);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Resolves when the connection should close. Awaited by the connection's task alone.
    pub async fn close_asked(&self) {
        poll_fn(|context| {
            self.waker.get_or_init(|| context.waker().clone());
            if self.closing.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Asks the connection to close; false where it was asked before.
    pub fn ask_to_close(&self) -> bool {
        let first = !self.closing.swap(true, Relaxed);
        if let (true, Some(waker)) = (first, self.waker.get()) {
            waker.wake_by_ref();
        }
        first
    }
}

/// Keeps a connection in the table; dropping it makes room for another.
#[derive(Debug)]
pub struct ListedConnection {
    /// Its entry.
    pub open: Arc<OpenConnection>,
    key: usize,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ListedConnection {
    fn drop(&mut self) {
        self.open.plane.table().open.try_remove(self.key);
        // What a search has found is not closed twice.
        self.open.note_busy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// A plane on virtual time, with a table of its connections by number.
    struct Plane {
        plane: Arc<OpenConnections>,
        connections: Vec<ListedConnection>,
    }

    impl Plane {
        async fn with(count: u64) -> Self {
            let plane = OpenConnections::new(count as usize, MINUTE);
            let mut connections = Vec::new();
            for number in 0..count {
                let permit = plane.permit().await.unwrap();
                connections.push(plane.list(number, permit));
            }
            Self { plane, connections }
        }

        async fn pass(&self, seconds: u64) {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            self.plane.tick();
        }

        fn request(&self, index: usize) {
            self.connections[index].open.note_busy();
            self.connections[index].open.note_idle();
        }

        /// The connections that were asked to close.
        fn closing(&self) -> Vec<u64> {
            let closing = self.connections.iter().map(|listed| &listed.open);
            closing.filter(|open| open.closing.load(Relaxed)).map(|open| open.number).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_is_closed_first() {
        let plane = Plane::with(4).await;
        for index in [2, 0, 3, 1] {
            plane.pass(1).await;
            plane.request(index);
        }
        plane.connections[0].open.note_busy();
        plane.pass(10).await;
        let mut order = Vec::new();
        while plane.plane.close_longest_idle() {
            let closing = plane.closing();
            order.extend(closing.into_iter().filter(|number| !order.contains(number)).max());
        }
        assert_eq!(order, [2, 3, 1], "the busy one stays");
    }

    #[tokio::test(start_paused = true)]
    async fn of_equals_the_oldest_is_closed_and_of_many_only_one() {
        let plane = Plane::with(FOUND_MAX as u64 * 3).await;
        plane.pass(10).await;
        for expected in 1..=FOUND_MAX * 2 {
            assert!(plane.plane.close_longest_idle());
            let closing = plane.closing();
            assert_eq!((closing.len(), closing.last()), (expected, Some(&(expected as u64 - 1))));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_between_two_requests_is_left_alone() {
        let plane = Plane::with(1).await;
        plane.pass(10).await;
        plane.request(0);
        plane.pass(1).await;
        assert!(!plane.plane.close_longest_idle());
        plane.pass(1).await;
        assert!(plane.plane.close_longest_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_found_and_asked_again_is_left_alone() {
        let plane = Plane::with(2).await;
        plane.pass(10).await;
        assert!(plane.plane.close_longest_idle());
        plane.request(1);
        assert!(!plane.plane.close_longest_idle());
        assert_eq!(plane.closing(), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_time_out_and_busy_ones_do_not() {
        let plane = Plane::with(3).await;
        plane.connections[0].open.note_busy();
        plane.pass(30).await;
        plane.request(1);
        plane.pass(29).await;
        plane.plane.close_timed_out();
        assert!(plane.closing().is_empty());
        plane.pass(1).await;
        plane.plane.close_timed_out();
        assert_eq!(plane.closing(), [2]);
        plane.pass(30).await;
        plane.plane.close_timed_out();
        assert_eq!(plane.closing(), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_is_asked_to_close() {
        let plane = Plane::with(3).await;
        plane.connections[0].open.set_silent(true);
        plane.connections[1].open.set_silent(true);
        plane.connections[1].open.set_silent(false);
        plane.pass(9).await;
        plane.plane.close_silent(Duration::from_secs(10));
        assert!(plane.closing().is_empty());
        plane.pass(1).await;
        plane.plane.close_silent(Duration::from_secs(10));
        assert_eq!(plane.closing(), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_part_of_a_request_is_called_once_a_tick() {
        let plane = Plane::with(2).await;
        let context = Context::from_waker(Waker::noop());
        let called = || [0, 1].map(|at: usize| plane.connections[at].open.was_called(&context));
        plane.connections[1].open.set_incomplete(true);
        assert_eq!(called(), [false, false]);
        plane.pass(1).await;
        assert_eq!(called(), [false, true]);
        plane.plane.tick();
        assert_eq!(called(), [false, false], "the clock has not moved");
        plane.plane.call_all();
        assert_eq!(called(), [true, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_room_gets_that_of_the_connection_that_closes() {
        let mut plane = Plane::with(2).await;
        plane.pass(10).await;
        plane.request(0);
        let (ours, closing) = (Arc::clone(&plane.plane), plane.connections.remove(1));
        let waiting = tokio::spawn(async move { ours.permit().await.is_some() });
        closing.open.close_asked().await;
        assert!(!plane.connections[0].open.is_needed());
        drop(closing);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn where_none_is_idle_an_answer_ends_its_connection() {
        let plane = Plane::with(1).await;
        let open = &plane.connections[0].open;
        open.note_busy();
        let mut permit = std::pin::pin!(plane.plane.permit());
        assert!(!open.is_needed());
        assert!(tokio::time::timeout(Duration::ZERO, permit.as_mut()).await.is_err());
        assert!(open.is_needed());
        plane.plane.permits.add_permits(1);
        assert!(permit.await.is_some());
        assert!(!open.is_needed());
    }
}
