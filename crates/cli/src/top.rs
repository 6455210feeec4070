//! `jitney top`: a running server, live in the terminal. The screen is a pure function of what is known
//! and what is chosen ([`screen`]); [`feed`] brings what is known, keys change what is chosen.
//!
//! Without a terminal, or on request, one frame is printed as text.

mod choice;
mod detail;
mod feed;
mod palette;
mod screen;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod view;
mod watched;

use std::io::IsTerminal as _;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::console;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::remote::TopFlags;
use crate::remote::client::RemoteClient;
use crate::remote::{self, block_on};
use choice::TopChoice;
use palette::TopPalette;
use view::TopView;
use watched::WatchedServer;

/// The width of a frame that is printed.
const WIDTH: u16 = 120;

/// Runs the command.
pub fn main(flags: &TopFlags, env: &Env) -> Result<u8, Failure> {
    let client = RemoteClient::new(&flags.server, env)?;
    if flags.server.json {
        return block_on(print_documents(&client, flags.once)).map(|()| 0);
    }
    if flags.once || !std::io::stdout().is_terminal() {
        return block_on(print_frame(&client)).map(|()| 0);
    }
    let palette = if env.no_color() { TopPalette::Plain } else { TopPalette::Colored };
    block_on(terminal::run(client, palette))
}

/// One document per line, as they come.
async fn print_documents(client: &RemoteClient, once: bool) -> Result<(), Failure> {
    if once {
        let (document, _) = remote::overview(client).await?;
        console::out(document.to_string());
        return Ok(());
    }
    let mut events = client.events(&["overview", "stream"], &[]).await?;
    while let Some(event) = events.next().await? {
        if event.name == "overview" {
            console::out(event.data.replace('\n', " "));
        }
    }
    Ok(())
}

/// One frame as text.
async fn print_frame(client: &RemoteClient) -> Result<(), Failure> {
    let mut watched = WatchedServer::new(client.address());
    let (_, overview) = remote::overview(client).await?;
    // Without a history there are no rates; everything else is there.
    watched.take_history(remote::history(client).await.unwrap_or_default());
    watched.take_overview(overview);
    let choice = TopChoice::default();
    if let Some(key) = choice.chosen(&watched) {
        watched.why = feed::why(client, &key).await.map(|batching| (key, batching));
    }
    let palette = TopPalette::Plain;
    let view = TopView { watched: &watched, choice: &choice, palette, interactive: false };
    frame(&view, WIDTH).iter().for_each(console::out);
    Ok(())
}

/// The screen as texts, without what is empty at the end.
fn frame(view: &TopView<'_>, width: u16) -> Vec<String> {
    let area = Rect::new(0, 0, width, screen::height(view));
    let mut buffer = Buffer::empty(area);
    screen::draw(view, area, &mut buffer);
    let row = |y: u16| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    let mut rows: Vec<String> = (0..area.height).map(row).collect();
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows
}
