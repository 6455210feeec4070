//! What the operator wants: more or fewer workers, other settings, a report, the end.

use jitney_batcher::Event;
use tokio::time::Instant;

use super::Task;
use crate::model::closing::Closing;
use crate::model::messages::ControlMessage;
use crate::model::report::BatcherReport;
use crate::model::slots::SlotChange;

impl Task {
    pub(super) fn on_control(&mut self, message: ControlMessage) {
        match message {
            ControlMessage::Scale { min, max, reply } => {
                for worker in self.pool.scale(min, max, reply) {
                    self.tell_slots(worker, SlotChange::Retired);
                }
                self.pool_changed();
            }
            ControlMessage::Reconfigure { settings, reply } => {
                let config = settings.batcher();
                let before = std::mem::discriminant(&self.batcher.config().policy);
                let other_policy = before != std::mem::discriminant(&config.policy);
                let single = self.slots.single();
                // A second slot belongs to one policy only: others would fill it at once.
                self.set_single(single || other_policy);
                self.step(Event::Configure(config));
                self.set_single(single);
                // A caller that does not wait any more is fine, here and below.
                let _ = reply.send(());
            }
            ControlMessage::Report { reply } => {
                let _ = reply.send(BatcherReport::of(&self.batcher, self.clock.now()));
            }
            ControlMessage::Close { grace, reply } => {
                Closing::ask(&mut self.closing, Instant::now() + grace, Some(reply));
                self.pool_changed();
            }
        }
    }

    /// Whether the model is closed and nothing is left to do; takes the next step towards that.
    pub(super) fn is_over(&mut self) -> bool {
        let turns_waiting = self.turns.waiting();
        let Some(closing) = &mut self.closing else { return false };
        if Instant::now() >= closing.deadline {
            return true;
        }
        if closing.begins_to_drain(turns_waiting) {
            self.step(Event::Drain);
        }
        let drained = self.batcher.drained();
        if self.closing.as_mut().is_some_and(|closing| closing.stops_workers(drained)) {
            for worker in self.pool.retire_all() {
                self.tell_slots(worker, SlotChange::Retired);
            }
        }
        self.closing.as_ref().is_some_and(|closing| closing.is_over(self.pool.is_empty()))
    }
}
