//! The screen as a function of what is known, what is chosen and its size. Nothing here has a state.

use jitney_telemetry::overview::ProblemTone;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget};

use super::detail;
use super::table;
use super::view::TopView;
use crate::remote::status;
use crate::remote::words::{plain, time};

/// Rows that the detail of a model needs to be of use.
const DETAIL_MIN: u16 = 8;

/// Problems that are named at the top.
const PROBLEMS_MAX: usize = 3;

/// Rows that a full detail takes.
const DETAIL_FULL: u16 = 24;

/// The rows that a screen needs to show everything.
pub fn height(view: &TopView<'_>) -> u16 {
    let models = u16::try_from(view.watched.models().len()).unwrap_or(u16::MAX / 2);
    header(view).len() as u16 + models + 2 + DETAIL_FULL
}

/// Draws the screen.
pub fn draw(view: &TopView<'_>, area: Rect, buffer: &mut Buffer) {
    let header = header(view);
    let footer = u16::from(view.interactive);
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(header.len() as u16),
        Constraint::Fill(1),
        Constraint::Length(footer),
    ])
    .areas(area);
    Paragraph::new(header).render(top, buffer);
    body(view, middle, buffer);
    let keys = " arrows choose   Enter detail   s sort   p pause   ? help   q end";
    Paragraph::new(Line::styled(keys, view.palette.faint())).render(bottom, buffer);
    if view.choice.help {
        help(area, buffer);
    }
}

fn body(view: &TopView<'_>, area: Rect, buffer: &mut Buffer) {
    let models = view.choice.sorted(view.watched);
    let Some(chosen) = models.get(view.choice.position(&models)) else {
        let text = match &view.watched.overview {
            Some(_) => "No model is registered. `jitney register FILE` adds one.",
            None => "Waiting for the server ...",
        };
        Paragraph::new(text).render(area, buffer);
        return;
    };
    if view.choice.alone {
        detail::draw(view, chosen, area, buffer);
        return;
    }
    let wanted = u16::try_from(models.len() + 2).unwrap_or(u16::MAX);
    let room = area.height.saturating_sub(DETAIL_MIN);
    let rows = if room < 4 { area.height } else { wanted.min(room.max(area.height / 2)) };
    let [list, rest] =
        Layout::vertical([Constraint::Length(rows), Constraint::Fill(1)]).areas(area);
    table::draw(view, &models, list, buffer);
    if rest.height >= DETAIL_MIN {
        detail::draw(view, chosen, rest, buffer);
    }
}

fn header(view: &TopView<'_>) -> Vec<Line<'static>> {
    let palette = view.palette;
    let address = view.watched.address.clone();
    let mut lines = Vec::new();
    match &view.watched.overview {
        None => lines.push(Line::from(format!("Jitney at {address}"))),
        Some(overview) => {
            let server = &overview.server;
            lines.push(Line::from(vec![
                Span::styled(format!("Jitney {}", plain(&server.version)), palette.title()),
                Span::raw(format!(" at {address}: ")),
                Span::styled(plain(&server.state), palette.state(&server.state)),
                Span::raw(format!(", up {}", time(server.uptime_seconds))),
                Span::styled(if view.choice.paused { "  PAUSED" } else { "" }, palette.bad()),
            ]));
            lines.push(Line::from(status::machine(overview).join("   ")));
            let gpus: Vec<_> = overview.gpus.iter().map(status::gpu).collect();
            if !gpus.is_empty() {
                lines.push(Line::from(gpus.join("   ")));
            }
            if !server.is_ready() && !server.state_text.is_empty() {
                let text = plain(&server.state_text);
                lines.push(Line::styled(text, palette.state(&server.state)));
            }
        }
    }
    let problems = view.watched.overview.iter().flat_map(|overview| &overview.problems);
    for problem in problems.filter(|it| it.tone != ProblemTone::Note).take(PROBLEMS_MAX) {
        lines.push(Line::styled(plain(&problem.what), palette.bad()));
    }
    if let Some(lost) = &view.watched.lost {
        let text = format!("no connection: {}; trying again", plain(lost));
        lines.push(Line::styled(text, palette.bad()));
    }
    lines
}

fn help(area: Rect, buffer: &mut Buffer) {
    let text = [
        "up, down, k, j   choose a model",
        "Enter            the chosen model alone, and back",
        "s                sort by the next column: name, req/s, rej/s, p99, queue, memory",
        "p, space         pause, and go on",
        "q, Esc, Ctrl-C   end",
        "",
        "REQ/S requests   GOOD/S answered in time   REJ/S rejected, of the last 5 seconds",
        "QUEUE waiting / most   RUN requests in workers   BATCH mean items per batch",
        "WORKERS ready / wanted   MEMORY of all workers   RESTARTS since registration",
    ];
    let width = 2 + text.iter().map(|line| line.len()).max().unwrap_or(0) as u16;
    let size = (width.min(area.width), (text.len() as u16 + 2).min(area.height));
    let x = area.x + (area.width - size.0) / 2;
    let y = area.y + (area.height - size.1) / 2;
    let popup = Rect { x, y, width: size.0, height: size.1 };
    Clear.render(popup, buffer);
    let lines: Vec<Line<'_>> = text.iter().map(|line| Line::from(*line)).collect();
    Paragraph::new(lines).block(Block::bordered().title(" Help ")).render(popup, buffer);
}
