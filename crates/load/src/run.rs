//! Runs a plan on its threads, shows what happens meanwhile, and puts the counts together.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::answer::Ending;
use crate::connection::ConnectionMaker;
use crate::dial::Dialer;
use crate::effort::Effort;
use crate::live::{LiveFigures, LiveWindow, Stop};
use crate::plan::{LoadMode, LoadPlan};
use crate::report::{LoadReport, RunRecord};
use crate::shard::{Shard, ShardPlan};

/// The threads are up before the first request is due.
const HEAD_START: Duration = Duration::from_millis(20);
const LIVE_EVERY: Duration = Duration::from_secs(1);
/// The reason that the server gives while a model loads.
const LOADING: &str = "loading";
const LOADING_MAX: Duration = Duration::from_secs(120);
const LOADING_PAUSE: Duration = Duration::from_millis(100);
/// Windows that may wait to be shown.
const WINDOWS_MAX: usize = 1024;

/// How a first request went.
#[derive(Clone, Debug)]
pub struct TrialAnswer {
    /// How it ended.
    pub ending: Ending,
    /// What the server said about an error, or the system.
    pub text: String,
}

/// Sends the first request once, before any load. A model that loads is waited for.
///
/// # Errors
/// The system gives no runtime.
pub fn trial(plan: &LoadPlan) -> io::Result<TrialAnswer> {
    let dialer = Rc::new(Dialer::new(plan.target.clone()));
    LocalSet::new().block_on(&runtime()?, async {
        let mut connection = ConnectionMaker::new(Rc::clone(&dialer), 1).make(0);
        let end = Instant::now() + LOADING_MAX;
        loop {
            let until = Instant::now() + plan.timeout;
            let exchange = connection.exchange(&plan.payloads[0], until).await;
            if exchange.reason().as_deref() == Some(LOADING) && Instant::now() < end {
                sleep(LOADING_PAUSE).await;
                continue;
            }
            let text = match exchange.error.as_deref() {
                Some(text) => String::from_utf8_lossy(text).into_owned(),
                None => dialer.problem(),
            };
            return Ok(TrialAnswer { ending: exchange.ending, text });
        }
    })
}

/// Runs a plan to its end, and shows the figures of every second to `live`.
///
/// # Errors
/// The system gives no thread, runtime or timer.
pub fn run(
    plan: LoadPlan,
    stop: &Stop,
    live: Option<&mut dyn FnMut(LiveFigures)>,
) -> io::Result<LoadReport> {
    let plan = Arc::new(plan);
    let left = match &plan.mode {
        LoadMode::Closed { requests, .. } => requests.unwrap_or(0),
        LoadMode::Open { .. } => 0,
    };
    let left = Arc::new(AtomicU64::new(left));
    let (sender, windows) = sync_channel(WINDOWS_MAX);
    let sender = live.is_some().then_some(sender);
    let start = Instant::now() + HEAD_START;
    let threads = (0..plan.threads).map(|number| {
        let (plan, stop, left) = (Arc::clone(&plan), stop.clone(), Arc::clone(&left));
        let share = ShardPlan { plan, number, start, stop, left };
        let sender = sender.clone();
        thread::Builder::new().name(format!("load-{number}")).spawn(move || shard(share, sender))
    });
    let threads: Vec<_> = threads.collect::<io::Result<_>>()?;
    drop(sender);
    if let Some(live) = live {
        show(&windows, threads.len(), live);
    }
    let mut record: Option<RunRecord> = None;
    for thread in threads {
        let one =
            thread.join().map_err(|_| io::Error::other("a thread of the generator panicked"))??;
        match &mut record {
            Some(record) => record.add(one),
            None => record = Some(one),
        }
    }
    let record = record.ok_or_else(|| io::Error::other("there is no thread"))?;
    let ran = stop.at().map(|at| at.saturating_duration_since(start));
    Ok(LoadReport::new(&plan, &record, ran))
}

fn runtime() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

type NumberedWindow = (u64, LiveWindow);

/// Puts the windows of the threads together, second by second, until all threads have ended.
fn show(windows: &Receiver<NumberedWindow>, threads: usize, live: &mut dyn FnMut(LiveFigures)) {
    let (mut now, mut seen, mut sum) = (1, 0, LiveWindow::default());
    for (second, window) in windows {
        if second > now {
            (now, seen, sum) = (second, 0, LiveWindow::default());
        }
        sum.add(&window);
        seen += 1;
        if seen == threads {
            live(sum.figures(now));
        }
    }
}

fn shard(share: ShardPlan, live: Option<SyncSender<NumberedWindow>>) -> io::Result<RunRecord> {
    let (start, stop) = (share.start, share.stop.clone());
    let shard = Rc::new(Shard::new(share, live.is_some()));
    let work = Rc::clone(&shard);
    let effort = Effort::now();
    LocalSet::new().block_on(&runtime()?, async {
        tokio::select! {
            ended = work.run() => ended,
            () = windows(&shard, start, live) => Ok(()),
            () = stop.at_once() => Ok(()),
        }
    })?;
    let record = shard.into_record();
    Ok(RunRecord::new(record, effort.since()))
}

/// Sends what happened, every second; without end.
async fn windows(shard: &Shard, start: Instant, live: Option<SyncSender<NumberedWindow>>) {
    let Some(live) = live else { return std::future::pending().await };
    for second in 1.. {
        sleep_until(start + LIVE_EVERY * second).await;
        // A terminal that does not keep up misses a second.
        let _ = live.try_send((u64::from(second), shard.window()));
    }
    std::future::pending().await
}
