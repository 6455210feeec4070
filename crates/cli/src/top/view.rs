//! What a screen is drawn from.

use super::choice::TopChoice;
use super::palette::TopPalette;
use super::watched::WatchedServer;

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
