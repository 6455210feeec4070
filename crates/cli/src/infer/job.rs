//! The job itself: rows in, a bounded number of them under way, answers out in the order of the input.
//!
//! A slow row holds back those behind it only as far as the window reaches; the window is bounded in
//! rows and in bytes, so that memory does not grow with the input.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::answer::Outcome;
use super::progress::Bar;
use super::reader::Rows;
use super::row::Row;
use super::sink::Sink;
use super::target::Target;
use crate::failure::Failure;

/// How often what was written is made to last. What lies after the last time is computed again by a
/// run that goes on, and never written twice.
const SETTLE_EVERY: Duration = Duration::from_secs(1);

/// Bytes of rows under way.
const BYTES_MAX: usize = 256 << 20;

/// What a job is made of.
pub struct Job {
    /// Who answers.
    pub target: Target,
    /// What is asked.
    pub rows: Rows,
    /// Where the answers go.
    pub sink: Sink,
    /// For the person at the terminal.
    pub bar: Bar,
    /// Rows under way, at most.
    pub in_flight: usize,
    /// Failed rows, at most.
    pub failed_max: Option<u64>,
}

/// How a job ended, when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every row is written.
    Complete,
    /// Somebody asked it to stop.
    Interrupted,
}

/// Rows under way, oldest first. Dropping it takes them back.
#[derive(Default)]
struct Window {
    under_way: VecDeque<(Row, JoinHandle<Result<Outcome, Failure>>)>,
    bytes: usize,
}

impl Job {
    /// Runs until the input ends, something stops it or `stop` resolves. Whatever was written down
    /// by then lasts.
    pub async fn run(&mut self, stop: impl Future<Output = ()>) -> Result<Ended, Failure> {
        let mut window = Window::default();
        let ended = self.pump(&mut window, stop).await;
        drop(window);
        let settled = self.sink.settle();
        let ended = ended?;
        settled.map(|()| ended)
    }

    async fn pump(
        &mut self,
        window: &mut Window,
        stop: impl Future<Output = ()>,
    ) -> Result<Ended, Failure> {
        let mut stop = std::pin::pin!(stop);
        let mut ticks = tokio::time::interval_at(Instant::now() + SETTLE_EVERY, SETTLE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut open = true;
        while open || !window.is_empty() {
            let room = window.under_way.len() < self.in_flight && window.bytes < BYTES_MAX;
            tokio::select! {
                biased;
                () = &mut stop => return Ok(Ended::Interrupted),
                _ = ticks.tick() => self.sink.settle()?,
                done = window.front(), if !window.is_empty() => {
                    let (row, outcome) = done?;
                    self.write(&row, &outcome)?;
                    if !window.front_is_ready() {
                        self.sink.pause()?;
                    }
                }
                row = self.rows.next(), if open && room => match row? {
                    Some(row) => window.push(row, &self.target),
                    None => open = false,
                },
            }
        }
        Ok(Ended::Complete)
    }

    fn write(&mut self, row: &Row, outcome: &Outcome) -> Result<(), Failure> {
        self.sink.write(row, outcome)?;
        let count = self.sink.count();
        self.bar.look(row.next, count);
        match (outcome, self.failed_max) {
            (Outcome::Failed(trouble), Some(most)) if count.failed > most => {
                Err(Failure::failed(format!(
                    "{} rows have failed, the last one with: {}",
                    count.failed, trouble.message
                ))
                .hint("--max-failed says how many may"))
            }
            _ => Ok(()),
        }
    }
}

impl Window {
    fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    fn push(&mut self, row: Row, target: &Target) {
        self.bytes += row.bytes();
        let asked = tokio::spawn(target.clone().ask(row.clone()));
        self.under_way.push_back((row, asked));
    }

    /// The oldest row, once it has ended. Giving up on it loses nothing.
    async fn front(&mut self) -> Result<(Row, Outcome), Failure> {
        let Some((_, asked)) = self.under_way.front_mut() else {
            return std::future::pending().await;
        };
        let ended = asked.await;
        let lost = || Failure::failed("a row was lost; this is a mistake in jitney");
        let (row, _) = self.under_way.pop_front().ok_or_else(lost)?;
        self.bytes -= row.bytes();
        Ok((row, ended.map_err(|_| lost())??))
    }

    fn front_is_ready(&self) -> bool {
        self.under_way.front().is_some_and(|(_, asked)| asked.is_finished())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.under_way.iter().for_each(|(_, asked)| asked.abort());
    }
}
