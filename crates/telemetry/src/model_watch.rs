//! Looks at the models once a second and says in the log what an operator should know and no single request
//! tells: that requests are rejected or late, that overload begins and ends, that a worker's memory grows.
//!
//! The models count; here totals are compared with those of before, so that the way of a request costs
//! nothing. How much is logged does not depend on how much goes wrong.

mod memory_growth;
mod rejections;
mod words;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jitney_engine::{Engine, Model};
use tokio::time::{Instant, MissedTickBehavior};

use self::memory_growth::MemoryGrowth;
use self::rejections::{RejectionWatch, Remark, Totals};
use crate::metrics::Meter;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many looks come to one look at the memory of workers.
const LOOKS_PER_MEMORY: u64 = 10;

/// What is known of all models from the looks so far.
#[derive(Default)]
pub struct ModelWatch {
    /// By the address of a version, which stays while it is registered.
    versions: HashMap<usize, RejectionWatch>,
    memory: MemoryGrowth,
}

impl ModelWatch {
    /// Looks at the models without end.
    pub async fn run(mut self, engine: &Engine, meter: &Meter) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for look in 0_u64.. {
            let now = ticks.tick().await;
            let models = engine.listed_versions().into_iter().map(|(model, _)| model);
            let models: Vec<_> = models.filter(|model| model.was_asked()).collect();
            self.look(&models, now);
            if look.is_multiple_of(LOOKS_PER_MEMORY) {
                self.memory.look(&models, now, |pid| meter.process(pid).map(|usage| usage.memory));
            }
        }
    }

    fn look(&mut self, models: &[Arc<Model>], now: Instant) {
        let mut before = std::mem::take(&mut self.versions);
        for model in models {
            let key = Arc::as_ptr(model) as usize;
            let mut watch = before.remove(&key).unwrap_or_default();
            for remark in watch.look(now, &totals(model)) {
                log(model, &remark);
            }
            self.versions.insert(key, watch);
        }
    }
}

fn totals(model: &Model) -> Totals {
    let (counters, rejections) = (model.counters(), model.rejections());
    Totals { rejections, answered: counters.answered, late: counters.late }
}

fn log(model: &Model, remark: &Remark) {
    let (name, version) = (model.name(), model.version());
    match remark {
        Remark::Rejected { reason, count, time, answers_per_second } => {
            let (seconds, rejected) = (time.as_secs(), *count);
            let why = words::why(reason, model.settings().queue_max, *answers_per_second);
            if words::is_the_clients_mistake(reason) {
                tracing::info!(model = name, version, reason, rejected, seconds, "{why}");
            } else {
                tracing::warn!(model = name, version, reason, rejected, seconds, "{why}");
            }
        }
        Remark::Late { count, time } => {
            let (seconds, late) = (time.as_secs(), *count);
            tracing::warn!(
                model = name,
                version,
                late,
                seconds,
                "requests were answered after their deadline or max_latency_ms"
            );
        }
        Remark::OverloadBegan { time, rejected } => {
            let seconds = time.as_secs();
            tracing::warn!(
                model = name,
                version,
                rejected,
                "overload began {seconds} s ago: more requests come than the workers can serve"
            );
        }
        Remark::OverloadEnded { time, rejected } => {
            let seconds = time.as_secs();
            tracing::warn!(
                model = name,
                version,
                rejected,
                "overload ended after {seconds} s, {rejected} requests were rejected"
            );
        }
    }
}
