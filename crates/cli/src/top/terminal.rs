//! The full screen: keys, documents and signals come in, frames go out. The terminal is given back as
//! it was, however this ends: by a key, by a signal, by an error or by a panic.

use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::choice::TopChoice;
use super::feed::{self, FeedEvent};
use super::palette::TopPalette;
use super::screen;
use super::view::TopView;
use super::watched::WatchedServer;
use crate::failure::{Failure, cannot};
use crate::remote::client::RemoteClient;

/// Events that wait to be shown; what brings them waits too.
const EVENTS_MAX: usize = 16;

/// How long the thread of the keys waits before it looks whether it is still needed.
const KEYS_PATIENCE: Duration = Duration::from_millis(100);

/// The exit code after a signal, as of a shell.
const INTERRUPTED: u8 = 130;

/// Gives the terminal back.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the server until the user ends it.
pub async fn run(client: RemoteClient, palette: TopPalette) -> Result<u8, Failure> {
    let mut watched = WatchedServer::new(client.address());
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let (choose, chosen) = watch::channel(None);
    // That a server is not there at all is told before the screen is taken.
    client.events(&["overview", "stream"], &[]).await?;
    tokio::spawn(feed::documents(client.clone(), sender.clone()));
    tokio::spawn(feed::decisions(client, chosen, sender));
    let mut signals = StopSignals::listen().map_err(cannot("listen for signals"))?;
    let mut choice = TopChoice::default();
    let mut terminal = ratatui::try_init().map_err(cannot("use the terminal"))?;
    let _restored = Restored;
    let mut keys = keys().map_err(cannot("read keys"))?;
    loop {
        draw(&mut terminal, &watched, &choice, palette)?;
        tokio::select! {
            Some(event) = events.recv() => {
                if !choice.paused {
                    take(&mut watched, event);
                }
            }
            event = keys.recv() => match event {
                Some(Event::Key(key)) => choice.press(key, &watched),
                Some(_) => {}
                None => return Ok(0),
            },
            () = signals.next() => return Ok(INTERRUPTED),
        }
        if choice.ended {
            return Ok(0);
        }
        choose.send_if_modified(|now| {
            let new = choice.chosen(&watched);
            let changed = *now != new;
            *now = new;
            changed
        });
    }
}

fn take(watched: &mut WatchedServer, event: FeedEvent) {
    match event {
        FeedEvent::History(history) => watched.take_history(history.samples),
        FeedEvent::Overview(overview) => watched.take_overview(*overview),
        FeedEvent::Lost(failure) => watched.lost = Some(failure.message),
        FeedEvent::Why(key, batching) => watched.why = Some((key, batching)),
    }
}

fn draw(
    terminal: &mut DefaultTerminal,
    watched: &WatchedServer,
    choice: &TopChoice,
    palette: TopPalette,
) -> Result<(), Failure> {
    let view = TopView { watched, choice, palette, interactive: true };
    let drawn = terminal.draw(|frame| screen::draw(&view, frame.area(), frame.buffer_mut()));
    drawn.map(drop).map_err(cannot("draw"))
}

/// Keys and changes of the size. They are read by a thread, since a read cannot be cancelled.
fn keys() -> std::io::Result<mpsc::Receiver<Event>> {
    let (sender, keys) = mpsc::channel(EVENTS_MAX);
    let read = move || {
        while !sender.is_closed() {
            let event = match event::poll(KEYS_PATIENCE) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(error) => Err(error),
            };
            if event.map(|event| sender.blocking_send(event)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("keys".to_owned()).spawn(read)?;
    Ok(keys)
}

/// The signals that end the screen.
struct StopSignals([tokio::signal::unix::Signal; 3]);

impl StopSignals {
    fn listen() -> std::io::Result<Self> {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [terminate, interrupt, hangup] = kinds.map(signal);
        Ok(Self([terminate?, interrupt?, hangup?]))
    }

    async fn next(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
