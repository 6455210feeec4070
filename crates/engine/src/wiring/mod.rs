//! Models that only wire others (`jitney.chain`, `jitney.fan_out`): their requests run here, without a process of
//! their own.
//!
//! Such a model is one like any other, with a queue, limits and counts. Its [`worker`] takes one request per batch,
//! many at a time, and `run` calls the parts in the order that the model's description gives.

mod run;
mod worker;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};

use crate::model::Model;
use crate::outcome::LaunchError;
use crate::queue_slots::QueueSlots;
use crate::registry::Registry;
use crate::store::{Api, Dependency, Wiring};

pub(crate) use self::worker::WiredLauncher;

/// What a model wires, and where its parts are found.
pub(crate) struct WiredModel {
    wiring: Wiring,
    parts: Vec<Dependency>,
    /// Parts may be exchanged for others of their name and version, so each call looks.
    registry: Weak<Registry>,
    queue_slots: Arc<QueueSlots>,
}

impl WiredModel {
    /// The wiring that a model's description has, if it has one.
    pub(crate) fn of(
        api: &Api,
        registry: &Arc<Registry>,
        queue_slots: &Arc<QueueSlots>,
    ) -> Option<Self> {
        Some(Self {
            wiring: api.wiring.clone()?,
            parts: api.depends.clone(),
            registry: Arc::downgrade(registry),
            queue_slots: Arc::clone(queue_slots),
        })
    }

    fn part(&self, at: usize) -> Option<Arc<Model>> {
        let Dependency { model, version, .. } = self.parts.get(at)?;
        self.registry.upgrade()?.find(model, version.as_deref()).ok()
    }

    /// Parts start before those that call them.
    fn check(&self) -> Result<(), LaunchError> {
        let missing = self.wiring.parts().into_iter().find(|at| self.part(*at).is_none());
        missing.map_or(Ok(()), |at| {
            let name = self.parts.get(at).map_or("which is not named", |part| &part.model);
            Err(LaunchError::Load(format!("there is no model for its part {name}").into()))
        })
    }
}
