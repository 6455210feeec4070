//! The colours of `jitney top`; none where `NO_COLOR` is set, and then nothing is told by colour alone.

use ratatui::style::{Color, Modifier, Style};

/// Which colours there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopPalette {
    /// The terminal's own colours.
    Colored,
    /// Bold and reversed only.
    Plain,
}

impl TopPalette {
    fn color(self, color: Color) -> Style {
        match self {
            Self::Colored => Style::new().fg(color),
            Self::Plain => Style::new(),
        }
    }

    /// Titles.
    pub fn title(self) -> Style {
        self.color(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// What is less important.
    pub fn faint(self) -> Style {
        self.color(Color::DarkGray)
    }

    /// Something is broken.
    pub fn bad(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The chosen model.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Bars.
    pub fn bar(self) -> Style {
        self.color(Color::Green)
    }

    /// The state of a model or a server.
    pub fn state(self, state: &str) -> Style {
        match state {
            "ready" => self.color(Color::Green),
            "loading" | "degraded" | "draining" | "ending" => self.color(Color::Yellow),
            _ => self.bad(),
        }
    }
}
