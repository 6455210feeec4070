//! What the operator wants: more or fewer workers, other settings, the end.
//!
//! An end is orderly as long as its grace lasts: what was admitted is answered, then the workers
//! leave. Nothing new is taken in meanwhile.

use std::time::Duration;

use jitney_batcher::{Config, Event, Rejection};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Task;
use crate::model::{BatcherReport, Control};

pub(super) struct Closing {
    pub(super) deadline: Instant,
    replies: Vec<oneshot::Sender<()>>,
    dismissed: bool,
    /// Whether the batcher knows; it is told once no request waits for its turn in a sequence.
    draining: bool,
}

impl Task {
    pub(super) fn on_control(&mut self, control: Control) {
        match control {
            Control::Scale { min, max, reply } => {
                for worker in self.state.pool.scale(min, max, reply) {
                    self.retire(worker);
                }
                self.pool_changed();
            }
            Control::Reconfigure { settings, reply } => {
                self.reconfigure(settings.batcher());
                let _told = reply.send(());
            }
            Control::Explain { reply } => {
                let now = self.nanos(Instant::now());
                // Nobody listening is fine: the caller did not want to wait.
                let _told = reply.send(BatcherReport::of(&self.state.batcher, now));
            }
            Control::Close { grace, reply } => self.close(grace, Some(reply)),
        }
    }

    /// A second slot belongs to one policy only: others would fill it at once.
    fn reconfigure(&mut self, config: Config) {
        let before = std::mem::discriminant(&self.state.batcher.config().policy);
        if before == std::mem::discriminant(&config.policy) {
            return self.step(Event::Configure(config));
        }
        let probation = self.state.probation;
        self.set_probation(true);
        self.step(Event::Configure(config));
        self.set_probation(probation);
    }

    /// Whether the model is closed and nothing is left to do.
    pub(super) fn over(&mut self) -> bool {
        let Some(closing) = &self.state.closing else { return false };
        if Instant::now() >= closing.deadline {
            return true;
        }
        let dismissed = closing.dismissed;
        self.drain();
        if !dismissed && self.state.batcher.drained() {
            self.dismiss_workers();
        }
        let dismissed = self.state.closing.as_ref().is_some_and(|closing| closing.dismissed);
        dismissed && self.state.pool.is_empty()
    }

    fn dismiss_workers(&mut self) {
        if let Some(closing) = &mut self.state.closing {
            closing.dismissed = true;
        }
        for worker in self.state.pool.retire_all() {
            self.retire(worker);
        }
    }

    /// The worker gets nothing more, and its sequences go elsewhere.
    pub(super) fn retire(&mut self, worker: u32) {
        self.forget_worker(worker);
        self.tell_retire(worker);
    }

    pub(super) fn close(&mut self, grace: Duration, reply: Option<oneshot::Sender<()>>) {
        let deadline = Instant::now() + grace;
        let closing = self.state.closing.get_or_insert_with(|| Closing {
            deadline,
            replies: Vec::new(),
            dismissed: false,
            draining: false,
        });
        closing.deadline = closing.deadline.min(deadline);
        closing.replies.extend(reply);
        self.drain();
        self.pool_changed();
    }

    /// Lets the batcher drain once everything that was admitted has reached it.
    pub(super) fn drain(&mut self) {
        if self.waiting_turns() > 0 {
            return;
        }
        if let Some(closing) = &mut self.state.closing
            && !std::mem::replace(&mut closing.draining, true)
        {
            self.step(Event::Drain);
        }
    }

    /// Ends what is left by force, then tells those who asked for the end.
    pub(super) fn say_goodbye(&mut self) {
        self.state.pool.abort_all();
        self.refuse_waiting(Rejection::Draining);
        for reply in self.state.closing.take().into_iter().flat_map(|closing| closing.replies) {
            let _told = reply.send(());
        }
    }
}
