//! How batches leave and who shares them, decided from what was said about it and what was not.
//!
//! Apart from the other settings because here silence counts too: a delay without a policy asks for
//! TorchServe's window, everything else for the adaptive one.

use std::time::Duration;

use super::Operator;
use crate::error::RegisterError;
use crate::settings::{Defaults, PolicyName, Wishes};
use crate::shares::Shares;
use crate::store::{BatchingYaml, ModelYaml};

/// How batches leave, decided from what was said about it and what was not.
pub(super) struct Batching {
    pub(super) size: u32,
    /// The delay that somebody asked for.
    pub(super) delay: Option<Duration>,
    pub(super) policy: PolicyName,
    pub(super) latency_max: Option<Duration>,
}

impl Batching {
    pub(super) fn resolve(
        wishes: &Wishes,
        yaml: &ModelYaml,
        operator: &Operator<'_>,
        defaults: &Defaults,
    ) -> Self {
        let own: &BatchingYaml = &yaml.batching;
        let size = wishes.batch_size.or(own.max_batch_size).or(yaml.batch_size);
        let size = size.or(operator.batch_size()).unwrap_or(1);
        let operators_delay = operator.number("maxBatchDelay").map(Duration::from_millis);
        let delay = wishes.max_batch_delay_ms.map(Duration::from_millis);
        let delay = delay.or(own.max_batch_delay).or(yaml.max_batch_delay).or(operators_delay);
        // A caller who asks for 0 wants no objective, whatever the others say.
        let latency_max = match wishes.max_latency_ms {
            Some(ms) => (ms > 0).then(|| Duration::from_millis(ms)),
            None => own.max_latency.or(operator.latency_max()),
        };
        let asked = wishes.policy.or(own.policy);
        let asked = asked.or(operator.policy()).or(defaults.policy);
        // An explicit delay asks for TorchServe's window, an objective or silence for adaptive.
        let implied = match (delay, latency_max) {
            (Some(_), None) => PolicyName::Window,
            (_, Some(_)) | (None, None) => PolicyName::Adaptive,
        };
        let policy = asked.unwrap_or(implied);
        Self { size, delay, policy, latency_max }
    }
}

/// Each word by itself: the caller's, the archive's, the operator's.
pub(super) fn shares(
    wishes: &Wishes,
    own: &BatchingYaml,
    operators: Option<Vec<(String, u32)>>,
) -> Result<Shares, RegisterError> {
    let tenants = wishes.tenants.clone().or_else(|| own.tenants.clone()).or(operators);
    let shares = Shares {
        tenants: Vec::new(),
        cost: wishes.cost.or(own.cost).unwrap_or_default(),
        cost_max: wishes.max_cost.or(own.max_cost),
        sample_cost: own.sample_cost,
    };
    shares.weighing(&tenants.unwrap_or_default()).map_err(RegisterError::BadSettings)
}
