//! Runs a job: reads rows, keeps a bounded number of them in flight, and writes the results in the
//! order of the input. The rows in flight are bounded by number and by bytes, so memory does not
//! grow with the input.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::backend::Backend;
use super::progress::ProgressDisplay;
use super::read_ahead::ReadAhead;
use super::row::{InputRow, RowResult};
use super::sink::RowSink;
use crate::failure::Failure;

/// How often written rows are made durable. Rows after the last commit are computed again by the next
/// run, and never written twice.
const COMMIT_EVERY: Duration = Duration::from_secs(1);

/// The most bytes of rows in flight.
const BYTES_MAX: usize = 256 << 20;

/// A job that is ready to run.
pub struct InferJob {
    /// Where rows are sent.
    pub backend: Backend,
    /// The input.
    pub rows: ReadAhead,
    /// The output.
    pub sink: Box<dyn RowSink>,
    /// The progress display.
    pub display: ProgressDisplay,
    /// The most rows in flight.
    pub in_flight: usize,
    /// The most failed rows.
    pub failed_max: Option<u64>,
}

/// How a job ended, when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// Every row is written.
    Complete,
    /// A signal stopped it.
    Interrupted,
}

/// The rows in flight, oldest first. Dropping it cancels them.
#[derive(Default)]
struct RowsInFlight {
    rows: VecDeque<(InputRow, JoinHandle<Result<RowResult, Failure>>)>,
    bytes: usize,
}

impl InferJob {
    /// Runs until the input ends, a failure ends the job or `stop` resolves. Rows that were written
    /// by then are durable.
    pub async fn run(&mut self, stop: impl Future<Output = ()>) -> Result<JobEnd, Failure> {
        let mut window = RowsInFlight::default();
        let ended = self.run_rows(&mut window, stop).await;
        drop(window);
        let committed = self.sink.commit();
        let ended = ended?;
        committed.map(|()| ended)
    }

    async fn run_rows(
        &mut self,
        window: &mut RowsInFlight,
        stop: impl Future<Output = ()>,
    ) -> Result<JobEnd, Failure> {
        let mut stop = std::pin::pin!(stop);
        let mut ticks = tokio::time::interval_at(Instant::now() + COMMIT_EVERY, COMMIT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut open = true;
        let mut broken = None;
        while open || !window.is_empty() {
            let room = window.rows.len() < self.in_flight && window.bytes < BYTES_MAX;
            tokio::select! {
                biased;
                () = &mut stop => return Ok(JobEnd::Interrupted),
                _ = ticks.tick() => self.sink.commit()?,
                done = window.front(), if !window.is_empty() => {
                    let (row, result) = done?;
                    self.write(&row, &result)?;
                    if !window.front_is_ready() {
                        self.sink.idle()?;
                    }
                }
                row = self.rows.next(), if open && room => match row {
                    Ok(Some(row)) => window.push(row, &self.backend),
                    Ok(None) => open = false,
                    // The rows before it are still answered and written.
                    Err(failure) => (open, broken) = (false, Some(failure)),
                },
            }
        }
        broken.map_or(Ok(JobEnd::Complete), Err)
    }

    fn write(&mut self, row: &InputRow, result: &RowResult) -> Result<(), Failure> {
        self.sink.write(row, result)?;
        let progress = self.sink.progress();
        self.display.update(progress);
        match (result, self.failed_max) {
            (RowResult::Failed(error), Some(most)) if progress.failed > most => {
                Err(Failure::failed(format!(
                    "{} rows have failed, the last one with: {}",
                    progress.failed, error.message
                ))
                .hint("--max-failed sets how many rows may fail"))
            }
            _ => Ok(()),
        }
    }
}

impl RowsInFlight {
    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn push(&mut self, row: InputRow, backend: &Backend) {
        self.bytes += row.content.len();
        let task = tokio::spawn(backend.clone().infer(row.clone()));
        self.rows.push_back((row, task));
    }

    /// The oldest row, once it has its result. Cancelling this call loses nothing.
    async fn front(&mut self) -> Result<(InputRow, RowResult), Failure> {
        let Some((_, task)) = self.rows.front_mut() else {
            return std::future::pending().await;
        };
        let ended = task.await;
        let lost = || Failure::failed("a row was lost; this is a bug in jitney");
        let (row, _) = self.rows.pop_front().ok_or_else(lost)?;
        self.bytes -= row.content.len();
        Ok((row, ended.map_err(|_| lost())??))
    }

    fn front_is_ready(&self) -> bool {
        self.rows.front().is_some_and(|(_, task)| task.is_finished())
    }
}

impl Drop for RowsInFlight {
    fn drop(&mut self) {
        self.rows.iter().for_each(|(_, task)| task.abort());
    }
}
