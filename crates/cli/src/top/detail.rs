//! The chosen model: its traffic, batch sizes, reasons, workers, last decisions and last error.

use jitney_telemetry::overview::ModelOverview;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Widget, Wrap};

use super::view::TopView;
use crate::remote::words::{bytes, counts, milliseconds, number, plain, time};

/// From this width on, two columns.
const WIDE: u16 = 100;

/// Rows of the chart.
const CHART_ROWS: u16 = 3;

/// Sizes, workers and decisions that are shown at most.
const SIZES_MAX: usize = 8;
const WORKERS_MAX: usize = 8;
const DECISIONS_MAX: usize = 6;

/// Characters of the longest bar.
const BAR_MAX: usize = 24;

/// Draws the model.
pub fn draw(view: &TopView<'_>, model: &ModelOverview, area: Rect, buffer: &mut Buffer) {
    let [title, chart, rest] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(CHART_ROWS),
        Constraint::Fill(1),
    ])
    .areas(area);
    let traffic = view.watched.traffic(&model.key(), usize::from(chart.width));
    let busiest = traffic.iter().copied().fold(0.0, f64::max);
    Paragraph::new(head(view, model, busiest)).render(title, buffer);
    // The chart has whole numbers only; slow traffic would be a flat line.
    let missing = usize::from(chart.width).saturating_sub(traffic.len());
    let scaled = traffic.iter().map(|rate| (rate * 100.0) as u64);
    let scaled: Vec<u64> = std::iter::repeat_n(0, missing).chain(scaled).collect();
    Sparkline::default().data(scaled).style(view.palette.bar()).render(chart, buffer);
    let (left, right) = (batches(view, model), workers(view, model));
    if area.width >= WIDE {
        let columns = [Constraint::Percentage(45), Constraint::Length(2), Constraint::Fill(1)];
        let [one, _, other] = Layout::horizontal(columns).areas(rest);
        Paragraph::new(left).wrap(Wrap { trim: false }).render(one, buffer);
        Paragraph::new(right).wrap(Wrap { trim: false }).render(other, buffer);
    } else {
        let all: Vec<Line<'_>> = right.into_iter().chain(left).collect();
        Paragraph::new(all).wrap(Wrap { trim: false }).render(rest, buffer);
    }
}

fn head<'a>(view: &TopView<'_>, model: &ModelOverview, busiest: f64) -> Line<'a> {
    let palette = view.palette;
    let rates = view.watched.rates(&model.key());
    Line::from(vec![
        Span::styled(plain(&model.key()), palette.title()),
        Span::raw(if model.is_default { " (default) " } else { " " }),
        Span::styled(plain(&model.state), palette.state(&model.state)),
        Span::raw(format!(", {}, at most {} items", plain(&model.policy), model.max_batch_size)),
        Span::raw(match model.max_latency_ms {
            Some(latency) => format!(", target {}", milliseconds(Some(latency))),
            None => String::new(),
        }),
        Span::raw(format!(
            "; {} requests/s now, {} at most",
            number(rates.requests),
            number(busiest)
        )),
    ])
}

/// Batch sizes as bars, and why batches were sent and requests rejected.
fn batches<'a>(view: &TopView<'_>, model: &ModelOverview) -> Vec<Line<'a>> {
    let palette = view.palette;
    let mut lines = vec![Line::styled("batch sizes since registration", palette.title())];
    let mut sizes: Vec<_> = model.batch_sizes.iter().filter(|size| size.batches > 0).collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(size.batches));
    sizes.truncate(SIZES_MAX);
    sizes.sort_by_key(|size| size.size);
    let most = sizes.iter().map(|size| size.batches).max().unwrap_or(1).max(1);
    for size in &sizes {
        let length = (size.batches as f64 / most as f64 * BAR_MAX as f64).ceil() as usize;
        lines.push(Line::from(vec![
            Span::raw(format!("{:>6} ", size.size)),
            Span::styled("#".repeat(length), palette.bar()),
            Span::raw(format!(" {}", size.batches)),
        ]));
    }
    if sizes.is_empty() {
        lines.push(Line::from("  no batch yet"));
    }
    let mut fact = |name: &str, text: String| {
        if !text.is_empty() {
            lines.push(Line::from(vec![
                Span::styled(format!("{name} "), palette.title()),
                Span::raw(plain(&text)),
            ]));
        }
    };
    let totals = &model.totals;
    fact("sent because", counts(&model.dispatches));
    fact("rejected because", counts(&model.rejections));
    fact(
        "requests",
        format!(
            "{} answered ({} late), {} rejected, {} failed, {} cancelled",
            totals.answered, totals.late, totals.rejected, totals.failed, totals.cancelled
        ),
    );
    lines
}

/// The last error first, then workers and decisions.
fn workers<'a>(view: &TopView<'_>, model: &ModelOverview) -> Vec<Line<'a>> {
    let palette = view.palette;
    let mut lines = Vec::new();
    let mut bad = |name: &str, text: Option<&String>| {
        if let Some(text) = text {
            let text = text.lines().last().unwrap_or_default();
            lines.push(Line::styled(format!("{name}: {}", plain(text)), palette.bad()));
        }
    };
    bad("last error", model.last_error.as_ref());
    bad("last exit", model.last_exit.as_ref());
    if model.state != "ready" && !model.state_text.is_empty() {
        lines.push(Line::from(plain(&model.state_text)));
    }
    let exits = counts(&model.exits);
    let exits = if exits.is_empty() { String::new() } else { format!(" (exits: {exits})") };
    let title = format!(
        "workers: {} of {} ready, {} restarts, {} failed loads{exits}",
        model.workers_ready(),
        model.workers_min,
        model.restarts,
        model.load_failures
    );
    lines.push(Line::styled(title, palette.title()));
    for worker in model.workers.iter().take(WORKERS_MAX) {
        let mut facts = vec![format!("{:>6} {}", worker.id, plain(&worker.state))];
        facts.extend(worker.pid.map(|pid| format!("pid {pid}")));
        facts.extend(worker.memory_bytes.map(|memory| bytes(memory as f64)));
        facts.extend(worker.cpu_percent.map(|percent| format!("CPU {percent:.0}%")));
        facts.extend(worker.cpus.as_ref().map(|cpus| format!("on {}", plain(cpus))));
        facts.extend(worker.gpu.map(|gpu| format!("GPU {gpu}")));
        facts.extend(worker.progress.as_ref().map(|progress| plain(&progress.to_string())));
        lines.push(Line::from(facts.join("  ")));
    }
    if model.workers.len() > WORKERS_MAX {
        lines.push(Line::from(format!("       and {} more", model.workers.len() - WORKERS_MAX)));
    }
    let why = view.watched.why.as_ref().filter(|(key, _)| *key == model.key());
    if let Some((_, batching)) = why {
        lines.push(Line::styled("why: the last decisions", palette.title()));
        lines.push(Line::from(format!("  {}", plain(&batching.how))));
        for decision in batching.decisions.iter().take(DECISIONS_MAX) {
            let ago = match decision.ago_ms {
                ago if ago < 10_000.0 => format!("{ago:.0} ms"),
                ago => time(ago / 1e3),
            };
            lines.push(Line::from(format!("  {ago} ago: {}", plain(&decision.words))));
        }
    }
    lines
}
