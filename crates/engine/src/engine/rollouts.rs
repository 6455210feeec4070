//! Sends a version back that is worse than the default one, and forward one that is not, as the shares of their model
//! say. One task for all models; while no shares have rules it waits for a change and costs nothing.
//!
//! What is worse is decided by [`Comparison`], from what the versions count anyway: no request knows of this.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::model::Model;
use crate::registry::Registry;
use crate::rollout::{Comparison, Outcomes};
use crate::traffic_split::{ReturnRule, TrafficSplit};

/// The time between two looks. Chosen: at 100 requests/s a look sees 50 more of them.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The versions of one model, since the last change of its shares.
struct WatchedModel {
    split: Arc<TrafficSplit>,
    began: Instant,
    /// The default version and another, by the models that they are.
    comparisons: Vec<([Arc<Model>; 2], Comparison)>,
    /// Whether it was said that one of the shares is another model's.
    warned: bool,
}

/// Looks at all models whose shares have rules, as long as there is a registry.
pub(super) async fn watch(registry: Weak<Registry>, mut changes: watch::Receiver<u64>) {
    let mut watched: HashMap<String, WatchedModel> = HashMap::new();
    loop {
        changes.borrow_and_update();
        let Some(registry) = registry.upgrade() else { return };
        let splits = registry.watched_splits();
        watched.retain(|name, _| splits.iter().any(|(it, _)| it == name));
        for (name, split) in splits {
            let entry = watched.entry(name.clone()).or_insert_with(|| WatchedModel::new(&split));
            if !Arc::ptr_eq(&entry.split, &split) {
                *entry = WatchedModel::new(&split);
            }
            entry.warn_of_others(&registry, &name);
            entry.look(&registry, &name);
        }
        drop(registry);
        if watched.is_empty() {
            if changes.changed().await.is_err() {
                return;
            }
        } else {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl WatchedModel {
    fn new(split: &Arc<TrafficSplit>) -> Self {
        let (split, began) = (Arc::clone(split), Instant::now());
        Self { split, began, comparisons: Vec::new(), warned: false }
    }

    /// Shares of models that came after them are not refused any more.
    fn warn_of_others(&mut self, registry: &Registry, name: &str) {
        if self.warned {
            return;
        }
        if let Some(other) = registry.share_of_another(name) {
            self.warned = true;
            tracing::warn!(
                model = name,
                "the share of {other} is not judged: return and promote compare versions of one model"
            );
        }
    }

    fn look(&mut self, registry: &Registry, name: &str) {
        let (Some(rule), Ok(old)) = (self.split.returns, registry.find(name, None)) else { return };
        self.comparisons.retain(|(both, _)| both.iter().all(|model| registry.holds(model)));
        let split = Arc::clone(&self.split);
        let sharing = split.shares.iter().filter(|(_, weight)| **weight > 0.0);
        for (version, _) in sharing.filter(|(version, _)| *version != old.version()) {
            let Ok(new) = registry.find(name, Some(version)) else { continue };
            if let Some(next) = self.judge(&rule, &old, &new) {
                next.apply(registry, &split, [&old, &new]);
                // With other shares the comparison begins anew.
                return;
            }
        }
        let shadow =
            split.shadow.as_ref().and_then(|it| registry.find(name, Some(&it.version)).ok());
        if let Some(new) = shadow
            && let Some(why) = self.judge_shadow(rule.for_shadow(), &old, &new)
        {
            NextStep::EndShadow(why).apply(registry, &split, [&old, &new]);
        }
    }

    fn judge_shadow(
        &mut self,
        rule: ReturnRule,
        old: &Arc<Model>,
        new: &Arc<Model>,
    ) -> Option<String> {
        let [same, different, failed, ..] = new.shadow_counts().map(|(_, count)| count);
        let (was, is) = (outcomes(old), Outcomes::of_shadow(same, different, failed));
        self.comparison(old, new, &was, &is).look(&rule, &was, &is)
    }

    fn comparison(
        &mut self,
        old: &Arc<Model>,
        new: &Arc<Model>,
        was: &Outcomes,
        is: &Outcomes,
    ) -> &mut Comparison {
        let known = self
            .comparisons
            .iter()
            .position(|([a, b], _)| Arc::ptr_eq(a, old) && Arc::ptr_eq(b, new));
        let at = known.unwrap_or_else(|| {
            let both = [Arc::clone(old), Arc::clone(new)];
            self.comparisons.push((both, Comparison::new(was.clone(), is.clone())));
            self.comparisons.len() - 1
        });
        &mut self.comparisons[at].1
    }

    fn judge(&mut self, rule: &ReturnRule, old: &Arc<Model>, new: &Arc<Model>) -> Option<NextStep> {
        let (was, is) = (outcomes(old), outcomes(new));
        let comparison = self.comparison(old, new, &was, &is);
        if let Some(why) = comparison.look(rule, &was, &is) {
            return Some(NextStep::Back(why));
        }
        let seen = comparison.seen(&is);
        let promotion = self.split.promote.as_ref()?;
        let share = self.split.share(new.version())? * 100.0;
        let due = self.began.elapsed() >= promotion.every && seen >= rule.after;
        let next = promotion.steps.iter().copied().find(|step| *step > share + 1e-6);
        next.filter(|_| due).map(NextStep::Forward)
    }
}

/// What becomes of a version.
enum NextStep {
    /// Its share is taken away, for this reason.
    Back(String),
    /// Its share grows to so many percent; with 100 it is the default.
    Forward(f64),
    /// It gets no more copies, for this reason.
    EndShadow(String),
}

impl NextStep {
    fn apply(self, registry: &Registry, before: &Arc<TrafficSplit>, [old, new]: [&Arc<Model>; 2]) {
        let (name, version) = (new.name(), new.version());
        let mut split = TrafficSplit::clone(before);
        let step = match self {
            Self::Back(why) => {
                split.shares.insert(version.to_owned(), 0.0);
                if split.shares.values().all(|weight| *weight == 0.0) {
                    split.shares.insert(old.version().to_owned(), 100.0);
                }
                tracing::warn!(
                    model = name,
                    version,
                    "version returned: {why}; it gets no more requests and stays loaded"
                );
                split.returned.insert(version.to_owned(), why);
                new.count_return();
                Some(split)
            }
            Self::EndShadow(why) => {
                tracing::warn!(
                    model = name,
                    version,
                    "shadow ended: {why}; it gets no more copies and stays loaded"
                );
                new.count_return();
                Some(before.without_shadow(why))
            }
            Self::Forward(percent) if percent < 100.0 => {
                tracing::info!(
                    model = name,
                    version,
                    "version promoted: it gets {percent} % of the requests"
                );
                Some(before.with_share(version, percent, old.version()))
            }
            Self::Forward(_) => {
                tracing::info!(model = name, version, "version promoted: it is the default");
                // It was found a moment ago.
                let _ = registry.set_default(name, version);
                None
            }
        };
        registry.replace_split(name, before, step.map(Arc::new));
    }
}

fn outcomes(model: &Model) -> Outcomes {
    let times = model.measures().latency_us.fine.unwrap_or_default();
    Outcomes { failed: model.counters().failed, different: 0, times }
}
