//! A handle's connection: reads calls, runs them side by side, writes what becomes of them.
//!
//! The only owner of its calls: when the client goes away they are dropped with it. It reads no
//! further while as many calls are under way as may, which slows the client down instead of failing
//! it, and writes everything that is ready at once.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::call::{Ask, Said};
use super::frame::{self, FrameError, Heard, NAMES_MAX, Wanted, Word};
use crate::accept::Beat;
use crate::connection::{Peer, Stage};
use crate::door::House;
use crate::errors::Problem;

/// Calls of one connection under way at a time.
pub(super) const CALLS_MAX: usize = 8192;
/// Bytes of such calls, beyond which no further one is read.
const CALL_BYTES_MAX: usize = 64 << 20;
/// Words that wait to be written; whoever has one more waits with it.
const WORDS_MAX: usize = 1024;
/// What is read, and written, at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// How long a client may take to notice the end, and how much it sends meanwhile is thrown away.
const FAREWELL: Duration = Duration::from_secs(1);
/// Bodies from here on are written from where they lie.
const COPY_BYTES_MAX: usize = 16 << 10;

/// Speaks frames until the client goes, breaks the rules, or the server ends.
pub(crate) async fn serve(
    coming: OnUpgrade,
    peer: &Arc<Peer>,
    house: &Arc<House>,
    mut beats: watch::Receiver<Beat>,
) {
    peer.enter(Stage::Busy);
    let Ok(stream) = coming.await else { return };
    let (mouth, mut ear) = mpsc::channel(WORDS_MAX);
    let mut calls = Calls::new(house, peer, mouth);
    let mut link = Link::new(stream);
    let ended = converse(&mut link, &mut calls, &mut ear, &mut beats).await;
    if let Err(error) = ended {
        tracing::debug!(peer = peer.address, %error, "handle ended");
    }
}

async fn converse(
    link: &mut Link,
    calls: &mut Calls<'_>,
    ear: &mut mpsc::Receiver<Said>,
    beats: &mut watch::Receiver<Beat>,
) -> io::Result<()> {
    let mut ending = matches!(*beats.borrow_and_update(), Beat::End);
    loop {
        if !ending {
            calls.take_in(&mut link.input)?;
        } else if calls.held.is_empty() {
            return link.part().await;
        }
        let reading = !ending && calls.has_room();
        tokio::select! {
            Some(said) = ear.recv() => link.say(said, calls, ear).await?,
            read = link.read(), if reading => if read? == 0 { return Ok(()) },
            beat = beats.changed() => {
                ending |= beat.is_err() || matches!(*beats.borrow_and_update(), Beat::End);
            }
        }
    }
}

/// The bytes of a connection.
struct Link {
    stream: TokioIo<Upgraded>,
    input: BytesMut,
    output: BytesMut,
}

impl Link {
    fn new(stream: Upgraded) -> Self {
        Self { stream: TokioIo::new(stream), input: BytesMut::new(), output: BytesMut::new() }
    }

    /// May be dropped while it waits.
    async fn read(&mut self) -> io::Result<usize> {
        self.input.reserve(CHUNK_BYTES);
        self.stream.read_buf(&mut self.input).await
    }

    /// Ends the connection. Closing it with bytes unread would destroy the last answers on their way.
    async fn part(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let gone = async {
            while self.read().await.is_ok_and(|count| count > 0) {
                self.input.clear();
            }
        };
        // Who does not go is left.
        drop(tokio::time::timeout(FAREWELL, gone).await);
        Ok(())
    }

    /// Writes a word and all that are ready behind it.
    async fn say(
        &mut self,
        said: Said,
        calls: &mut Calls<'_>,
        ear: &mut mpsc::Receiver<Said>,
    ) -> io::Result<()> {
        let mut next = Some(said);
        while let Some(Said { id, word }) = next {
            if calls.is_awaited(id, &word) {
                let body = word.write(id, &mut self.output);
                self.put(body).await?;
            }
            next = ear.try_recv().ok();
        }
        self.stream.write_all_buf(&mut self.output).await?;
        self.stream.flush().await
    }

    async fn put(&mut self, mut body: Bytes) -> io::Result<()> {
        if body.len() < COPY_BYTES_MAX {
            self.output.extend_from_slice(&body);
        }
        if body.len() >= COPY_BYTES_MAX || self.output.len() >= CHUNK_BYTES {
            self.stream.write_all_buf(&mut self.output).await?;
        }
        if body.len() >= COPY_BYTES_MAX {
            self.stream.write_all_buf(&mut body).await?;
        }
        Ok(())
    }
}

/// A call under way.
struct Held {
    task: AbortHandle,
    bytes: usize,
}

/// The calls of a connection. Dropping it drops them.
struct Calls<'a> {
    house: &'a Arc<House>,
    peer: &'a Arc<Peer>,
    mouth: mpsc::Sender<Said>,
    tasks: JoinSet<()>,
    /// Those that owe a last word.
    held: HashMap<u64, Held>,
    /// The bytes of their bodies.
    bytes: usize,
}

impl<'a> Calls<'a> {
    fn new(house: &'a Arc<House>, peer: &'a Arc<Peer>, mouth: mpsc::Sender<Said>) -> Self {
        Self { house, peer, mouth, tasks: JoinSet::new(), held: HashMap::new(), bytes: 0 }
    }

    fn has_room(&self) -> bool {
        self.held.len() < CALLS_MAX && self.bytes < CALL_BYTES_MAX
    }

    /// Begins and cancels what has arrived, as far as there is room.
    fn take_in(&mut self, input: &mut BytesMut) -> io::Result<()> {
        while let Some(done) = self.tasks.try_join_next() {
            // A call that panicked never says its last word; the end of the connection says it.
            done.or_else(|error| if error.is_cancelled() { Ok(()) } else { Err(error) })?;
        }
        let limit = self.house.config.max_request_bytes + NAMES_MAX;
        while self.has_room() {
            match frame::take(input, limit).map_err(broken)? {
                Some(Heard::Call(wanted)) => self.begin(wanted)?,
                Some(Heard::Cancel { id }) => {
                    if let Some(held) = self.release(id) {
                        held.task.abort();
                    }
                }
                None => break,
            }
        }
        Ok(())
    }

    fn begin(&mut self, wanted: Wanted) -> io::Result<()> {
        let (id, bytes, mouth) = (wanted.id, wanted.body.len(), self.mouth.clone());
        if self.held.contains_key(&id) {
            return Err(broken(FrameError::TakenId));
        }
        let task = match self.ask(wanted) {
            Ok(ask) => self.tasks.spawn(ask.run(mouth)),
            Err(problem) => self.tasks.spawn(async move {
                drop(mouth.send(Said { id, word: Word::Failed(problem) }).await);
            }),
        };
        self.held.insert(id, Held { task, bytes });
        self.bytes += bytes;
        Ok(())
    }

    fn release(&mut self, id: u64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.bytes -= held.bytes;
        Some(held)
    }

    fn ask(&mut self, wanted: Wanted) -> Result<Ask, Problem> {
        let model = self.house.engine.model(&wanted.model, wanted.version.as_deref())?;
        if wanted.content_type.is_empty() && model.api().is_none() {
            return Err(Problem::bad_request(format!(
                "Model \"{}\" is no definition of the jitney package: make its handle with \
                 encoding=\"json\" or encoding=\"bytes\".",
                wanted.model
            )));
        }
        let room = self.house.rooms.of(&model);
        let (house, peer) = (Arc::clone(self.house), Arc::clone(self.peer));
        Ok(Ask { house, peer, model, room, wanted, started: Instant::now() })
    }

    /// Whether the client still waits for this word; the last one ends its call.
    fn is_awaited(&mut self, id: u64, word: &Word) -> bool {
        if word.is_last() { self.release(id).is_some() } else { self.held.contains_key(&id) }
    }
}

fn broken(error: FrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.as_str())
}
