//! Items per batch under the names by which other servers know them, for endpoints that ask for it: dashboards
//! and alerts of an application that was moved here go on working.

use std::collections::{BTreeMap, BTreeSet};

use jitney_engine::Distribution;
use jitney_engine::store::MetricName;

use super::family::MetricKind;
use super::own::ModelSnapshot;
use super::page::{HistogramCounts, MetricsPage};

const HELP: &str = "Items per batch";

/// A histogram as the other server would have it.
struct NamedSizes<'a> {
    labels: Vec<(&'a str, &'a str)>,
    bounds: Vec<u64>,
    counts: Vec<u64>,
    sum: u64,
}

/// Writes them. Their labels do not tell versions apart, so the default one of each model is shown, which comes
/// first.
pub(super) fn write(page: &mut MetricsPage<'_>, snapshots: &[ModelSnapshot]) {
    let mut named: BTreeMap<&str, Vec<NamedSizes<'_>>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for snapshot in snapshots {
        let Some(api) = snapshot.model.api().filter(|api| !api.metrics.is_empty()) else {
            continue;
        };
        for (endpoint, names) in &api.metrics {
            let apart = snapshot.endpoints.iter().find(|it| it.name == *endpoint);
            let items = apart.map_or(&snapshot.measures.batch_items, |it| &it.batch_items);
            let view = snapshot.model.endpoints().remove(endpoint);
            let largest = view.and_then(|view| view.batch_size).unwrap_or(1);
            for MetricName { name, labels } in names {
                if seen.insert((name, labels)) {
                    let labels = labels.iter().map(|(key, value)| (&**key, &**value)).collect();
                    named.entry(name).or_default().push(sizes(labels, items, largest.into()));
                }
            }
        }
    }
    for (name, all) in named {
        if page.begin(name, MetricKind::Histogram, HELP) {
            for NamedSizes { labels, bounds, counts, sum } in all {
                let counts = HistogramCounts { buckets: &counts, sum: sum as f64, fine: None };
                page.histogram(&labels, bounds.iter().map(|bound| *bound as f64), counts);
            }
        }
    }
}

/// Powers of two below the largest batch, the largest batch, and what is above. Of a lone request with more items
/// than that only those beyond the next power of two are known to be above.
fn sizes<'a>(
    labels: Vec<(&'a str, &'a str)>,
    items: &Distribution,
    largest: u64,
) -> NamedSizes<'a> {
    let below = items.bounds.partition_point(|bound| *bound < largest);
    let mut bounds = items.bounds[..below].to_vec();
    bounds.push(largest);
    let mut counts = items.counts[..=below].to_vec();
    counts.push(items.counts[below + 1..].iter().sum());
    NamedSizes { labels, bounds, counts, sum: items.sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[u64] = &[1, 2, 4, 8];

    #[test]
    fn the_largest_batch_is_the_last_bound() {
        let items =
            Distribution { bounds: BOUNDS, counts: vec![1, 2, 3, 4, 5], sum: 9, fine: None };
        let of = |largest| {
            let NamedSizes { bounds, counts, .. } = sizes(Vec::new(), &items, largest);
            (bounds, counts)
        };
        assert_eq!(of(1), (vec![1], vec![1, 14]));
        assert_eq!(of(3), (vec![1, 2, 3], vec![1, 2, 3, 9]));
        assert_eq!(of(4), (vec![1, 2, 4], vec![1, 2, 3, 9]));
        assert_eq!(of(100), (vec![1, 2, 4, 8, 100], vec![1, 2, 3, 4, 5, 0]));
    }
}
