//! A model in the place of another of its name, without a moment in which nobody answers.
//!
//! The new one is opened first, so that a broken file changes nothing. Then it is loaded beside the old one and found
//! once it is ready; or, where there is no memory for both, the old one ends first and requests wait for the new one.

use std::sync::Arc;

use super::registrar::{Registered, Registrar};
use crate::error::{RegisterError, ReplaceError};
use crate::model::{Model, ModelIdentity};
use crate::settings::RegisterOptions;

/// Which of the two comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceOrder {
    /// The old one ends when the new one is ready.
    LoadFirst,
    /// The new one is loaded when the old one has ended.
    StopFirst,
}

/// A new model that nobody finds yet, and the one that it replaces.
pub(super) struct Replacement {
    models: Arc<Registrar>,
    old: Option<Arc<Model>>,
    new: Registered,
}

impl Replacement {
    /// Opens the new one. The old one is that of the same version, else that of the same source, else the default one of
    /// the name. The new one gets as many workers as the old one where nobody says how many.
    pub(super) async fn open(
        models: &Arc<Registrar>,
        options: &RegisterOptions,
    ) -> Result<Self, RegisterError> {
        let models = Arc::clone(models);
        let mut new = models.start_unlisted(options).await?;
        let identity = new.model.identity();
        let versions = models.registry.versions(&identity.name).unwrap_or_default();
        let of = |same: fn(&ModelIdentity, &ModelIdentity) -> bool| {
            versions.iter().find(|it| same(it.identity(), identity)).cloned()
        };
        let old = of(|old, new| old.version == new.version);
        let old = old.or_else(|| of(|old, new| old.url == new.url));
        let old = old.or_else(|| models.registry.find(&identity.name, None).ok());
        if let Some(old) = old.as_ref().filter(|_| new.workers_max == 0) {
            (new.workers_min, new.workers_max) = old.worker_target();
        }
        Ok(Self { models, old, new })
    }

    /// Lets the new one be found and the old one end, in this order.
    pub(super) async fn run(self, order: ReplaceOrder) -> Result<Arc<Model>, ReplaceError> {
        let done = match order {
            ReplaceOrder::LoadFirst => self.load_first().await,
            ReplaceOrder::StopFirst => self.stop_first().await,
        };
        let Self { models, new: Registered { model, .. }, .. } = self;
        if let Err(error) = done {
            models.registry.withdraw(&model);
            models.end(&model).await;
            return Err(error);
        }
        Ok(model)
    }

    async fn load_first(&self) -> Result<(), ReplaceError> {
        self.models.load_beside(self.old.as_ref(), &self.new).await?;
        self.models.registry.exchange(self.old.as_ref(), &self.new.model)?;
        self.models.retire(self.old.iter().cloned().collect());
        Ok(())
    }

    async fn stop_first(&self) -> Result<(), ReplaceError> {
        let Registered { model, workers_min, workers_max } = &self.new;
        // Requests that come from now on wait for it.
        model.set_worker_target(*workers_min, *workers_max);
        self.models.registry.exchange(self.old.as_ref(), model)?;
        if let Some(old) = &self.old {
            self.models.end_removed(old).await;
        }
        self.models.load_beside(None, &self.new).await
    }
}
