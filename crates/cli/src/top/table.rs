//! The table of models: one row each, and as many columns as fit.

use jitney_telemetry::overview::ModelOverview;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, StatefulWidget, Table, TableState};

use super::choice::SortKey;
use super::view::TopView;
use crate::remote::rates::RemoteRates;
use crate::remote::words::{bytes, milliseconds, number, plain};

/// The least width of the names.
const NAME_MIN: u16 = 12;

/// A column.
struct ModelColumn {
    title: &'static str,
    width: u16,
    /// Columns with a higher rank go first when the screen is narrow.
    rank: u8,
    text: fn(&ModelOverview, &RemoteRates) -> String,
}

const COLUMNS: [ModelColumn; 12] = [
    ModelColumn { title: "STATE", width: 9, rank: 0, text: |model, _| plain(&model.state) },
    ModelColumn { title: "REQ/S", width: 7, rank: 0, text: |_, rates| number(rates.requests) },
    ModelColumn { title: "GOOD/S", width: 7, rank: 1, text: |_, rates| number(rates.goodput) },
    ModelColumn { title: "REJ/S", width: 6, rank: 0, text: |_, rates| number(rates.rejected) },
    ModelColumn { title: "P50", width: 8, rank: 3, text: |_, rates| milliseconds(rates.p50_ms) },
    ModelColumn { title: "P99", width: 8, rank: 0, text: |_, rates| milliseconds(rates.p99_ms) },
    ModelColumn {
        title: "QUEUE",
        width: 9,
        rank: 0,
        text: |model, _| format!("{}/{}", model.waiting, model.queue_max),
    },
    ModelColumn { title: "RUN", width: 5, rank: 4, text: |model, _| model.running.to_string() },
    ModelColumn {
        title: "BATCH",
        width: 5,
        rank: 2,
        text: |_, rates| rates.batch_size.map_or("-".to_owned(), number),
    },
    ModelColumn {
        title: "WORKERS",
        width: 7,
        rank: 0,
        text: |model, _| format!("{}/{}", model.workers_ready(), model.workers_min),
    },
    ModelColumn {
        title: "MEMORY",
        width: 8,
        rank: 2,
        text: |model, _| bytes(model.memory_bytes() as f64),
    },
    ModelColumn {
        title: "RESTARTS",
        width: 8,
        rank: 3,
        text: |model, _| model.restarts.to_string(),
    },
];

/// The columns that fit beside the names.
fn fitting(width: u16) -> Vec<&'static ModelColumn> {
    let mut rank_max = u8::MAX;
    loop {
        let columns: Vec<_> = COLUMNS.iter().filter(|column| column.rank <= rank_max).collect();
        let needed: u16 = columns.iter().map(|column| column.width + 1).sum();
        if needed + NAME_MIN <= width || rank_max == 0 {
            return columns;
        }
        rank_max = columns.iter().map(|column| column.rank).max().unwrap_or(1).saturating_sub(1);
    }
}

/// Draws the table.
pub fn draw(view: &TopView<'_>, models: &[&ModelOverview], area: Rect, buffer: &mut Buffer) {
    let columns = fitting(area.width);
    let (palette, sort) = (view.palette, view.choice.sort);
    let titled = |title: &'static str| {
        let mark = if sort.title() == title && sort != SortKey::Name { "v" } else { "" };
        format!("{title}{mark}")
    };
    let right = |text: String| Line::from(text).right_aligned();
    let titles = columns.iter().map(|column| match column.title {
        "STATE" => Line::from("STATE"),
        title => right(titled(title)),
    });
    let header = Row::new([Line::from("MODEL")].into_iter().chain(titles)).style(palette.title());
    let rows = models.iter().map(|model| {
        let rates = view.watched.rates(&model.key());
        let cells =
            columns.iter().map(|column| match (column.title, (column.text)(model, &rates)) {
                ("STATE", text) => Line::from(Span::styled(text, palette.state(&model.state))),
                ("REJ/S", text) if rates.rejected > 0.0 => right(text).style(palette.bad()),
                (_, text) => right(text),
            });
        Row::new([Line::from(plain(&model.key()))].into_iter().chain(cells))
    });
    let widths = [Constraint::Min(NAME_MIN)]
        .into_iter()
        .chain(columns.iter().map(|column| Constraint::Length(column.width)));
    let mut table = Table::new(rows, widths).header(header);
    if view.interactive {
        table = table.row_highlight_style(palette.chosen());
    }
    let mut state = TableState::new().with_selected(view.choice.position(models));
    StatefulWidget::render(table, area, buffer, &mut state);
}
