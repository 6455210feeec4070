//! How much each policy carries with 99 % on time, relative to the bound.

use super::{Effort, Scenario, bert, cpu, r50, step8};
use crate::grid::families;
use jitney_sim::curve::ms;
use jitney_sim::text_table::TextTable;

/// The twelve columns.
#[must_use]
pub fn columns() -> Vec<Scenario> {
    let r50 = |name, workers| Scenario::new(name, r50(), workers, 25.0);
    vec![
        r50("R50 k1", 1),
        Scenario::new("CPU k1", cpu(), 1, 60.0),
        Scenario::new("BERT k1", bert(), 1, 30.0),
        Scenario::new("step8 k1", step8(), 1, 20.0),
        r50("R50 k2", 2),
        r50("R50 k4", 4),
        r50("R50 k8", 8),
        Scenario::new("BERT k4", bert(), 4, 30.0),
        r50("R50 k1 noisy", 1).noisy(),
        r50("R50 k4 noisy", 4).noisy(),
        r50("R50 k1 MMPP", 1).bursty(),
        r50("R50 k4 MMPP", 4).bursty(),
    ]
}

/// Every policy in every column.
pub fn table(columns: &[Scenario], effort: &mut Effort<'_>) -> TextTable {
    let title = "Highest rate with 99 % on time, relative to the bound (k=1, 2: clairvoyant; \
                 more: fluid limit). * means tuned by an oracle for each column";
    let mut table = TextTable::new(title, columns.iter().map(|column| column.name.to_owned()));
    let bounds: Vec<f64> = columns
        .iter()
        .map(|column| {
            (effort.progress)(&format!("{}: bound", column.name));
            column.bound(effort.count, effort.seed)
        })
        .collect();
    for at in 0..families(0).len() {
        let mut name = "";
        let cells: Vec<String> = columns
            .iter()
            .zip(&bounds)
            .map(|(column, bound)| {
                let family = &families(ms(column.deadline))[at];
                name = family.name;
                if !effort.peers && !name.starts_with("ours") {
                    return String::new();
                }
                (effort.progress)(&format!("{}: {name}", column.name));
                let (rate, _) = column.g99(&family.members, effort.count, effort.seed);
                format!("{:.3}", rate / bound)
            })
            .collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            table.row(name, cells);
        }
    }
    table.row("bound, requests/ms", bounds.iter().map(|bound| format!("{:.4}", bound / 1e3)));
    table
}
