//! Answers that a model version gave before, and runs that several equal requests wait for.
//!
//! It belongs to one load of a version and goes with it, so that a model that was loaded again never answers from
//! before. What makes two requests equal, and which answers are for one of them only, is said by who asks: here a request
//! is its [`AnswerKey`].

mod rule;
mod shelf;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use jitney_batcher::Priority;
use tokio::time::Instant;

pub use self::rule::CacheRule;
pub use self::shelf::AnswerKey;
use self::shelf::Shelf;
use crate::admission::{Admission, HeldBytes};
use crate::error::CallError;
use crate::outcome::Output;
use crate::reply::{Answer, Timing};

/// What an entry takes beside its answer: its key twice, and its place in the tables.
const ENTRY_BYTES: usize = 256;

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOutcome {
    /// With an answer that was there.
    Hit,
    /// By the run of an equal request.
    Shared,
    /// By a run of its own.
    Miss,
}

impl CacheOutcome {
    const ALL: [Self; 3] = [Self::Hit, Self::Shared, Self::Miss];

    /// The name in headers and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Shared => "shared",
            Self::Miss => "miss",
        }
    }
}

/// An answer that more than one request gets.
#[derive(Debug)]
pub struct CommonAnswer {
    output: Output,
    timing: Timing,
}

impl CommonAnswer {
    /// The answer for one more request that waited for its run.
    pub fn of_run(&self) -> Answer {
        Answer { output: self.output.clone(), timing: self.timing.clone(), stream: None }
    }

    /// The answer for a request that nothing was run for.
    pub fn of_shelf(&self) -> Answer {
        let mut answer = self.of_run();
        (answer.timing.queue, answer.timing.compute) = Default::default();
        answer
    }
}

/// What only the request gets that began the run: a failure, a stream.
pub type OwnAnswer = Result<Answer, CallError>;

/// How a run ended.
#[derive(Clone, Debug)]
pub enum RunEnd {
    /// With an answer for everybody who waits.
    Common(Arc<CommonAnswer>),
    /// With an answer for the request that began it. That takes it; the others are to be run by themselves.
    Own(Arc<Mutex<Option<OwnAnswer>>>),
}

/// A run that equal requests wait for. It goes on as long as one of them waits.
pub type CommonRun = Shared<BoxedRun>;

type BoxedRun = Pin<Box<dyn Future<Output = RunEnd> + Send>>;

/// What a request finds. It gets itself back where it was not needed.
pub enum CacheFind<R> {
    /// An answer.
    Hit(Arc<CommonAnswer>, R),
    /// The run of an equal request.
    Shared(CommonRun, R),
    /// Nothing; its own run began.
    Miss(CommonRun),
}

/// The cache of one load of a model version.
#[derive(Debug)]
pub struct AnswerCache {
    /// Whether requests are to look here.
    on: AtomicBool,
    books: Mutex<CacheBooks>,
    counts: [AtomicU64; 3],
    waiting: AtomicU64,
    account: Arc<Admission>,
}

#[derive(Debug)]
struct CacheBooks {
    shelf: Shelf<(Arc<CommonAnswer>, HeldBytes)>,
    /// The runs under way with their numbers. A bulk run is none that others should wait for.
    runs: HashMap<(AnswerKey, Priority), (u64, WeakShared<BoxedRun>)>,
    begun: u64,
}

impl AnswerCache {
    pub(crate) fn new(rule: Option<&CacheRule>, account: Arc<Admission>) -> Self {
        let (shelf, on) = (Shelf::new(rule), AtomicBool::new(rule.is_some()));
        let books = Mutex::new(CacheBooks { shelf, runs: HashMap::new(), begun: 0 });
        Self { on, books, counts: Default::default(), waiting: AtomicU64::new(0), account }
    }

    /// Begins anew under another rule, with nothing on the shelf.
    pub(crate) fn change(&self, rule: Option<&CacheRule>) {
        let old = std::mem::replace(&mut self.books().shelf, Shelf::new(rule));
        self.on.store(rule.is_some(), Ordering::Relaxed);
        drop(old);
    }

    /// Whether there is a cache at all.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Counts how a request was answered.
    pub fn count(&self, outcome: CacheOutcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Requests by how they were answered; none where there is no cache.
    pub fn counts(cache: Option<&Arc<Self>>) -> [(&'static str, u64); 3] {
        let count = |it: CacheOutcome| {
            cache.map_or(0, |cache| cache.counts[it as usize].load(Ordering::Relaxed))
        };
        CacheOutcome::ALL.map(|it| (it.as_str(), count(it)))
    }

    /// Counts a request that waits for the run of another, until what it gets is dropped.
    pub fn wait(&self) -> RunWait<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        RunWait(&self.waiting)
    }

    /// Requests that wait for the run of another one.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Bytes of the answers that it keeps.
    pub fn bytes(&self) -> u64 {
        self.books().shelf.bytes()
    }

    /// Looks for an answer, or for a run to wait for; without one it takes the run that `begin` makes of the request. A
    /// `fresh` answer comes from a new run whatever there is.
    pub fn find<R, F>(
        self: &Arc<Self>,
        (key, priority): (AnswerKey, Priority),
        fresh: bool,
        now: Instant,
        request: R,
        begin: impl FnOnce(R) -> F,
    ) -> CacheFind<R>
    where
        F: Future<Output = Result<Answer, OwnAnswer>> + Send + 'static,
    {
        let mut books = self.books();
        if !fresh {
            if let Some((answer, _)) = books.shelf.get(&key, now) {
                return CacheFind::Hit(Arc::clone(answer), request);
            }
            let run = books.runs.get(&(key, priority)).and_then(|(_, run)| run.upgrade());
            if let Some(run) = run {
                return CacheFind::Shared(run, request);
            }
        }
        books.begun += 1;
        let entry = RunEntry { cache: Arc::clone(self), run: (key, priority), number: books.begun };
        let answer = begin(request);
        let run = async move {
            let answer = answer.await;
            entry.cache.end(entry.run.0, answer, Instant::now())
        };
        let run = (Box::pin(run) as BoxedRun).shared();
        if let Some(weak) = run.downgrade() {
            let number = books.begun;
            books.runs.insert((key, priority), (number, weak));
        }
        CacheFind::Miss(run)
    }

    /// Keeps what can be kept of how a run ended.
    fn end(&self, key: AnswerKey, answer: Result<Answer, OwnAnswer>, now: Instant) -> RunEnd {
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(own) => return RunEnd::Own(Arc::new(Mutex::new(Some(own)))),
        };
        let bytes = weight(&answer.output);
        if !self.books().shelf.takes(bytes) {
            let Answer { output, timing, .. } = answer;
            return RunEnd::Common(Arc::new(CommonAnswer { output, timing }));
        }
        // A copy, since the answer may be a piece of what a whole batch was answered with.
        answer.output.body = Bytes::copy_from_slice(&answer.output.body);
        let Answer { output, timing, .. } = answer;
        let common = Arc::new(CommonAnswer { output, timing });
        if let Some(held) = self.account.keep_if_room(bytes) {
            self.books().shelf.put(key, (Arc::clone(&common), held), bytes, now);
        }
        RunEnd::Common(common)
    }

    fn books(&self) -> MutexGuard<'_, CacheBooks> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an answer takes of the cache's bytes.
fn weight(output: &Output) -> u64 {
    let headers = output.headers.iter().map(|(name, value)| name.len() + value.len());
    (output.bytes() + headers.sum::<usize>() + ENTRY_BYTES) as u64
}

/// A request that waits for the run of another.
pub struct RunWait<'a>(&'a AtomicU64);

impl Drop for RunWait<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A run in the books, taken out when the run ends or nobody waits for it any more.
struct RunEntry {
    cache: Arc<AnswerCache>,
    run: (AnswerKey, Priority),
    number: u64,
}

impl Drop for RunEntry {
    fn drop(&mut self) {
        let mut books = self.cache.books();
        if books.runs.get(&self.run).is_some_and(|(number, _)| *number == self.number) {
            books.runs.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests;
