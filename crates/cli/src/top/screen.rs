//! The screen as a function of what is known, what is chosen and its size. Nothing here has a state.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Widget};

use super::choice::TopChoice;
use super::detail;
use super::palette::TopPalette;
use super::table;
use super::watched::WatchedServer;
use crate::remote::words::{bytes, plain, time};

/// Rows that the detail of a model needs to be of use.
const DETAIL_MIN: u16 = 8;

/// Rows that a full detail takes.
const DETAIL_FULL: u16 = 24;

/// Everything that a screen depends on, but its size.
#[derive(Clone, Copy)]
pub struct TopView<'a> {
    /// What is known.
    pub watched: &'a WatchedServer,
    /// What is chosen.
    pub choice: &'a TopChoice,
    /// The colours.
    pub palette: TopPalette,
    /// Whether somebody can press keys.
    pub interactive: bool,
}

impl TopView<'_> {
    /// The rows that a screen needs to show everything.
    pub fn height(&self) -> u16 {
        let models = u16::try_from(self.watched.models().len()).unwrap_or(u16::MAX / 2);
        self.header().len() as u16 + models + 2 + DETAIL_FULL
    }

    /// Draws the screen.
    pub fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let header = self.header();
        let footer = u16::from(self.interactive);
        let [top, middle, bottom] = Layout::vertical([
            Constraint::Length(header.len() as u16),
            Constraint::Fill(1),
            Constraint::Length(footer),
        ])
        .areas(area);
        Paragraph::new(header).render(top, buffer);
        self.body(middle, buffer);
        let keys = " arrows choose   Enter detail   s sort   p pause   ? help   q end";
        Paragraph::new(Line::styled(keys, self.palette.faint())).render(bottom, buffer);
        if self.choice.help {
            self.help(area, buffer);
        }
    }

    fn body(&self, area: Rect, buffer: &mut Buffer) {
        let models = self.choice.sorted(self.watched);
        let Some(chosen) = models.get(self.choice.position(&models)) else {
            let text = match &self.watched.overview {
                Some(_) => "No model is registered. `jitney register FILE` adds one.",
                None => "Waiting for the server ...",
            };
            Paragraph::new(text).render(area, buffer);
            return;
        };
        if self.choice.alone {
            detail::draw(self, chosen, area, buffer);
            return;
        }
        let wanted = u16::try_from(models.len() + 2).unwrap_or(u16::MAX);
        let room = area.height.saturating_sub(DETAIL_MIN);
        let rows = if room < 4 { area.height } else { wanted.min(room.max(area.height / 2)) };
        let [list, rest] =
            Layout::vertical([Constraint::Length(rows), Constraint::Fill(1)]).areas(area);
        table::draw(self, &models, list, buffer);
        if rest.height >= DETAIL_MIN {
            detail::draw(self, chosen, rest, buffer);
        }
    }

    fn header(&self) -> Vec<Line<'static>> {
        let palette = self.palette;
        let address = self.watched.address.clone();
        let mut lines = Vec::new();
        match &self.watched.overview {
            None => lines.push(Line::from(format!("Jitney at {address}"))),
            Some(overview) => {
                let server = &overview.server;
                lines.push(Line::from(vec![
                    Span::styled(format!("Jitney {}", plain(&server.version)), palette.title()),
                    Span::raw(format!(" at {address}: ")),
                    Span::styled(plain(&server.state), palette.state(&server.state)),
                    Span::raw(format!(", up {}", time(server.uptime_seconds))),
                    Span::styled(if self.choice.paused { "  PAUSED" } else { "" }, palette.bad()),
                ]));
                lines.push(Line::from(machine(overview)));
                lines.extend(gpus(overview).map(Line::from));
                if !server.is_ready() && !server.state_text.is_empty() {
                    let text = plain(&server.state_text);
                    lines.push(Line::styled(text, palette.state(&server.state)));
                }
            }
        }
        if let Some(lost) = &self.watched.lost {
            let text = format!("no connection: {}; trying again", plain(lost));
            lines.push(Line::styled(text, palette.bad()));
        }
        lines
    }

    fn help(&self, area: Rect, buffer: &mut Buffer) {
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
}

fn machine(overview: &crate::remote::overview::RemoteOverview) -> String {
    let mut facts = Vec::new();
    if let Some(machine) = &overview.machine {
        let (used, total) = (machine.memory_used_bytes as f64, machine.memory_total_bytes as f64);
        facts.push(format!("CPU {:.0}%", machine.cpu_percent));
        facts.push(format!("memory {} of {}", bytes(used), bytes(total)));
    }
    let server = &overview.server;
    facts.push(format!("server {}", bytes(server.memory_bytes as f64)));
    facts.push(format!(
        "requests hold {} of {}",
        bytes(server.request_memory_bytes as f64),
        bytes(server.request_memory_limit_bytes as f64)
    ));
    facts.push(format!("{} connections", server.connections));
    facts.join("   ")
}

fn gpus(overview: &crate::remote::overview::RemoteOverview) -> Option<String> {
    let gpus = overview.gpus.iter().map(|gpu| {
        let busy = gpu.utilization_percent.map_or("-".to_owned(), |busy| format!("{busy:.0}%"));
        let memory = gpu.memory_used_bytes.zip(gpu.memory_total_bytes);
        let memory = memory.map_or(String::new(), |(used, total)| {
            format!(", {} of {}", bytes(used), bytes(total))
        });
        format!("GPU {} {busy}{memory}", gpu.id)
    });
    let gpus: Vec<_> = gpus.collect();
    (!gpus.is_empty()).then(|| gpus.join("   "))
}
