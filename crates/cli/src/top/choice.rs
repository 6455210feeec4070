//! What the user chose: which model, which order, paused or not. Keys change it, and nothing else does.

use jitney_telemetry::overview::ModelOverview;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::watched::WatchedServer;

/// The order of the models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    /// By name.
    #[default]
    Name,
    /// Most requests first.
    Requests,
    /// Most rejections first.
    Rejected,
    /// Slowest first.
    P99,
    /// Longest queue first.
    Queue,
    /// Largest first.
    Memory,
}

impl SortKey {
    /// The title of its column.
    pub fn title(self) -> &'static str {
        match self {
            Self::Name => "MODEL",
            Self::Requests => "REQ/S",
            Self::Rejected => "REJ/S",
            Self::P99 => "P99",
            Self::Queue => "QUEUE",
            Self::Memory => "MEMORY",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Name => Self::Requests,
            Self::Requests => Self::Rejected,
            Self::Rejected => Self::P99,
            Self::P99 => Self::Queue,
            Self::Queue => Self::Memory,
            Self::Memory => Self::Name,
        }
    }
}

/// What the user chose.
#[derive(Clone, Debug, Default)]
pub struct TopChoice {
    /// The chosen model, by its key; none means the first.
    pub model: Option<String>,
    /// The order.
    pub sort: SortKey,
    /// Whether the chosen model has the screen for itself.
    pub alone: bool,
    /// Whether the screen stands still.
    pub paused: bool,
    /// Whether the keys are explained.
    pub help: bool,
    /// Whether to end.
    pub ended: bool,
}

impl TopChoice {
    /// What a key does.
    #[expect(clippy::wildcard_enum_match_arm, reason = "any other key does nothing")]
    pub fn press(&mut self, key: KeyEvent, watched: &WatchedServer) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => self.ended = true,
            KeyCode::Char('q') => self.ended = true,
            KeyCode::Esc if !(self.help || self.alone) => self.ended = true,
            KeyCode::Esc => (self.help, self.alone) = (false, false),
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Enter => self.alone = !self.alone,
            KeyCode::Up | KeyCode::Char('k') => self.step(watched, -1),
            KeyCode::Down | KeyCode::Char('j') => self.step(watched, 1),
            KeyCode::Home | KeyCode::Char('g') => self.step(watched, isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(watched, isize::MAX),
            _ => {}
        }
    }

    fn step(&mut self, watched: &WatchedServer, by: isize) {
        let models = self.sorted(watched);
        let now = self.position(&models);
        let last = models.len().saturating_sub(1);
        let next = now.saturating_add_signed(by).min(last);
        self.model = models.get(next).map(|model| model.key());
    }

    /// The models in the chosen order; equal ones by name.
    pub fn sorted<'a>(&self, watched: &'a WatchedServer) -> Vec<&'a ModelOverview> {
        let weight = |model: &ModelOverview| {
            let rates = watched.rates(&model.key());
            match self.sort {
                SortKey::Name => 0.0,
                SortKey::Requests => rates.requests,
                SortKey::Rejected => rates.rejected,
                SortKey::P99 => rates.p99_ms.unwrap_or(0.0),
                SortKey::Queue => f64::from(model.waiting),
                SortKey::Memory => model.memory_bytes() as f64,
            }
        };
        let mut models: Vec<_> =
            watched.models().iter().map(|model| (weight(model), model)).collect();
        models.sort_by(|(left, one), (right, other)| {
            right.total_cmp(left).then_with(|| one.key().cmp(&other.key()))
        });
        models.into_iter().map(|(_, model)| model).collect()
    }

    /// Where the chosen model is; the first where it is gone.
    pub fn position(&self, models: &[&ModelOverview]) -> usize {
        let chosen = |key: &String| models.iter().position(|model| model.key() == *key);
        self.model.as_ref().and_then(chosen).unwrap_or(0)
    }

    /// The key of the chosen model.
    pub fn chosen(&self, watched: &WatchedServer) -> Option<String> {
        let models = self.sorted(watched);
        models.get(self.position(&models)).map(|model| model.key())
    }
}
