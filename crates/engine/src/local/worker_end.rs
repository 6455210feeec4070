//! The other end of the worker frames: what a worker process of this program says and hears. It blocks,
//! since such a process does one thing at a time.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::{BufMut, Bytes, BytesMut};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use serde_json::json;
use tokio::time::Instant;

use super::{Signature, message};
use crate::frames::{
    FrameHeader, FrameKind, HEADER_LEN, PAYLOAD_MAX, PROTOCOL, decode_control, decode_items,
    encode_control,
};
use crate::outcome::{BatchOutcome, Cause, ItemOutcome, ModelFailure};

/// From this size on, bodies of answers are written in place. Below it one copy is cheaper.
const COPY_MAX: usize = 64 * 1024;

/// What everything but the bodies takes in a REPLY, at most.
const HEADS_MAX: usize = 64 << 20;

/// What a process is told to load.
#[derive(Debug, serde::Deserialize)]
pub struct WorkerLoad {
    /// The model's file.
    pub file: PathBuf,
    /// The name by which answers call the model.
    pub model_name: String,
    /// The version by which answers call the model.
    pub model_version: String,
    /// Bytes that the process may use.
    memory_limit: Option<u64>,
    /// What the runtime is told beside.
    #[serde(default)]
    pub options: serde_json::Value,
}

/// A SHARE.
#[derive(serde::Deserialize)]
struct ServingWorkers {
    workers: u32,
}

impl WorkerLoad {
    /// From now on a process that needs more memory than it may have aborts. `default` holds where
    /// the server sets no limit.
    ///
    /// # Errors
    /// The system does not allow the limit.
    pub fn limit_memory(&self, default: u64) -> io::Result<()> {
        let limit = Some(self.memory_limit.unwrap_or(default));
        Ok(setrlimit(Resource::Data, Rlimit { current: limit, maximum: limit })?)
    }
}

/// The connection of a worker process to its server.
#[derive(Debug)]
pub struct WorkerEnd {
    stream: BufReader<UnixStream>,
    began: Instant,
}

/// A REPLY as bytes: what is written, piece by piece.
struct ReplyPieces {
    /// Everything but the bodies.
    heads: BytesMut,
    /// Where the heads are cut, and the body that follows.
    bodies: Vec<(usize, Bytes)>,
}

impl WorkerEnd {
    /// Connects, and waits to be told what to load.
    ///
    /// # Errors
    /// The server is gone.
    pub fn connect(socket: &Path, token: &str) -> io::Result<(Self, WorkerLoad)> {
        // The connection ends with the server, too, but a model at work does not look at it.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        let stream = BufReader::with_capacity(COPY_MAX, UnixStream::connect(socket)?);
        let mut end = Self { stream, began: Instant::now() };
        let hello = json!({ "protocol": PROTOCOL, "token": token, "pid": std::process::id() });
        end.send_control(FrameKind::Hello, &hello)?;
        match end.receive()? {
            Some((header, payload)) if header.kind == FrameKind::Load => {
                let load = decode_control(&payload).map_err(io::Error::other)?;
                end.began = Instant::now();
                Ok((end, load))
            }
            Some(_) | None => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Tells the server that the model is loaded, and what runs it.
    ///
    /// # Errors
    /// The server is gone.
    pub fn loaded(&mut self, signature: &Signature, engine: &str) -> io::Result<()> {
        let seconds = self.began.elapsed().as_secs_f64();
        let message = json!({ "seconds": seconds, "signature": signature, "engine": engine });
        self.send_control(FrameKind::Loaded, &message)
    }

    /// Tells the server that the model cannot be loaded, and why.
    ///
    /// # Errors
    /// The server is gone.
    pub fn load_failed(&mut self, message: &str) -> io::Result<()> {
        self.send_control(FrameKind::LoadFailed, &json!({ "cause": "error", "message": message }))
    }

    /// Runs one batch after the other until the server says stop or hangs up, or until it says how many workers share
    /// the machine, which is returned: go on then. `work` is given the meta and the body of every request.
    ///
    /// # Errors
    /// The server is gone.
    pub fn run_batches(
        &mut self,
        mut work: impl FnMut(Vec<(Bytes, Bytes)>) -> BatchOutcome,
    ) -> io::Result<Option<u32>> {
        while let Some((header, payload)) = self.receive()? {
            if header.kind == FrameKind::Share {
                let told: ServingWorkers = decode_control(&payload).map_err(io::Error::other)?;
                return Ok(Some(told.workers));
            }
            if header.kind != FrameKind::Batch {
                return Ok(None);
            }
            let items = decode_items(header.count, payload, |meta, body| Ok((meta, body)))
                .map_err(io::Error::other)?;
            let outcome = catch_unwind(AssertUnwindSafe(|| work(items)))
                .unwrap_or_else(|panic| BatchOutcome::Failed(panicked(message(&*panic))));
            self.send_outcome(header.id, outcome)?;
        }
        Ok(None)
    }

    /// The next frame; `None` when the server has hung up.
    fn receive(&mut self) -> io::Result<Option<(FrameHeader, Bytes)>> {
        let mut head = [0; HEADER_LEN];
        match self.stream.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let header = FrameHeader::decode(&head).map_err(io::Error::other)?;
        let mut payload = Vec::with_capacity(header.length as usize);
        let read = self.stream.by_ref().take(u64::from(header.length)).read_to_end(&mut payload)?;
        if read < header.length as usize {
            return Ok(None);
        }
        Ok(Some((header, payload.into())))
    }

    fn send_control(&mut self, kind: FrameKind, message: &serde_json::Value) -> io::Result<()> {
        let mut frame = BytesMut::new();
        encode_control(kind, message, &mut frame);
        self.stream.get_mut().write_all(&frame)
    }

    fn send_outcome(&mut self, batch: u64, outcome: BatchOutcome) -> io::Result<()> {
        match fitting(outcome) {
            BatchOutcome::Items(items) => {
                let reply = ReplyPieces::new(batch, items);
                reply.write(self.stream.get_mut())
            }
            BatchOutcome::Failed(failure) => {
                let cause = word(failure.cause);
                let (status, message) = (failure.status, &failure.message);
                let text = json!({ "cause": cause, "status": status, "message": message });
                let text = text.to_string();
                let (length, kind) = (text.len() as u32, FrameKind::Failed);
                let mut frame = BytesMut::new();
                FrameHeader { length, kind, count: 0, id: batch }.encode(&mut frame);
                frame.put_slice(text.as_bytes());
                self.stream.get_mut().write_all(&frame)
            }
        }
    }
}

impl ReplyPieces {
    fn new(batch: u64, items: Vec<ItemOutcome>) -> Self {
        let (count, mut table) = (items.len() as u16, BytesMut::new());
        let (mut metas, mut bodies) = (BytesMut::new(), Vec::with_capacity(items.len()));
        let before = HEADER_LEN + 8 * items.len();
        for item in items {
            let start = metas.len();
            let body = put_item(item, &mut metas);
            table.put_u32_le((metas.len() - start) as u32);
            table.put_u32_le(body.len() as u32);
            bodies.push((before + metas.len(), body));
        }
        let length = table.len() + metas.len() + bodies.iter().map(|it| it.1.len()).sum::<usize>();
        let mut heads = BytesMut::with_capacity(before + metas.len());
        FrameHeader { length: length as u32, kind: FrameKind::Reply, count, id: batch }
            .encode(&mut heads);
        heads.extend_from_slice(&table);
        heads.extend_from_slice(&metas);
        Self { heads, bodies }
    }

    fn slices(&self) -> Vec<&[u8]> {
        let mut slices = Vec::with_capacity(2 * self.bodies.len());
        let mut start = 0;
        for (end, body) in &self.bodies {
            slices.extend([&self.heads[start..*end], body]);
            start = *end;
        }
        slices.push(&self.heads[start..]);
        slices.retain(|slice| !slice.is_empty());
        slices
    }

    fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let slices = self.slices();
        if slices.iter().map(|slice| slice.len()).sum::<usize>() <= COPY_MAX {
            return stream.write_all(&slices.concat());
        }
        let mut pieces: Vec<IoSlice<'_>> = slices.into_iter().map(IoSlice::new).collect();
        let mut left = &mut pieces[..];
        while !left.is_empty() {
            match stream.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The outcome, unless its answers are longer than a frame may be.
fn fitting(outcome: BatchOutcome) -> BatchOutcome {
    let BatchOutcome::Items(items) = &outcome else { return outcome };
    let bodies = items.iter().flatten().map(|output| output.body.len());
    let (bytes, most) = (bodies.sum::<usize>(), PAYLOAD_MAX as usize - HEADS_MAX);
    if bytes <= most {
        return outcome;
    }
    let message =
        format!("the answer has {bytes} bytes, more than the {most} that a worker may send");
    BatchOutcome::Failed(ModelFailure::new(Cause::Memory, message))
}

/// Writes the meta of an answer and returns its body.
fn put_item(item: ItemOutcome, out: &mut BytesMut) -> Bytes {
    match item {
        Ok(output) if output.status.is_none() && output.headers.is_empty() => output.body,
        Ok(output) => {
            let (status, phrase) = output.status.unwrap_or((200, String::new()));
            put_head((0, 0, status), &phrase, output.headers.len(), out);
            for (name, value) in &output.headers {
                out.put_u16_le(name.len() as u16);
                out.put_u32_le(value.len() as u32);
                out.put_slice(name.as_bytes());
                out.put_slice(value.as_bytes());
            }
            output.body
        }
        Err(failure) => {
            put_head((1, code(failure.cause), failure.status.unwrap_or(0)), "", 0, out);
            failure.message.into()
        }
    }
}

fn put_head(
    (outcome, cause, status): (u8, u8, u16),
    phrase: &str,
    headers: usize,
    out: &mut BytesMut,
) {
    out.put_u8(outcome);
    out.put_u8(cause);
    out.put_u16_le(status);
    out.put_u16_le(phrase.len() as u16);
    out.put_u16_le(headers as u16);
    out.put_slice(phrase.as_bytes());
}

/// The cause of a failed item in the frames.
fn code(cause: Cause) -> u8 {
    match cause {
        Cause::Raised | Cause::TooLarge => 1,
        Cause::Memory => 2,
        Cause::Prediction => 3,
        Cause::NotAList => 4,
        Cause::WrongLength => 5,
        Cause::UnsupportedOutput => 6,
        Cause::Stated => 7,
    }
}

/// The cause of a failed batch in the frames.
fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::Memory => "memory",
        Cause::WrongLength => "wrong-length",
        Cause::NotAList => "not-a-list",
        Cause::Prediction => "prediction",
        Cause::Raised | Cause::UnsupportedOutput | Cause::Stated | Cause::TooLarge => "raised",
    }
}

/// A batch on which the model panicked.
fn panicked(message: &str) -> ModelFailure {
    // What Rust's collections say of more elements than any memory has room for.
    let cause = if message.contains("capacity overflow") { Cause::Memory } else { Cause::Raised };
    ModelFailure::new(cause, format!("the model panicked: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Output;
    use crate::frames::{decode_failed, decode_reply};

    /// The two ends of a connection.
    fn ends() -> (WorkerEnd, UnixStream) {
        let (worker, server) = UnixStream::pair().expect("a pair");
        (WorkerEnd { stream: BufReader::new(worker), began: Instant::now() }, server)
    }

    fn frame(server: &mut UnixStream) -> (FrameHeader, Bytes) {
        let mut head = [0; HEADER_LEN];
        server.read_exact(&mut head).expect("a header");
        let header = FrameHeader::decode(&head).expect("sound");
        let mut payload = vec![0; header.length as usize];
        server.read_exact(&mut payload).expect("a payload");
        (header, payload.into())
    }

    fn outcomes() -> Vec<ItemOutcome> {
        let json = || vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let failure = ModelFailure::new(Cause::UnsupportedOutput, "no");
        vec![
            Ok(Output { body: Bytes::from_static(b"short"), ..Output::default() }),
            Ok(Output {
                status: Some((200, String::new())),
                headers: json(),
                body: vec![7; COPY_MAX].into(),
                tensors: None,
            }),
            Err(failure),
            Ok(Output::default()),
        ]
    }

    #[test]
    fn answers_are_read_as_they_were_written_in_one_piece_or_many() {
        for count in [1, 4] {
            let (mut end, mut server) = ends();
            let mut sent = outcomes();
            sent.truncate(count);
            let expected = sent.clone();
            let writer = std::thread::spawn(move || end.send_outcome(9, BatchOutcome::Items(sent)));
            let (header, payload) = frame(&mut server);
            writer.join().expect("no panic").expect("written");
            assert_eq!((header.kind, header.id), (FrameKind::Reply, 9));
            assert_eq!(decode_reply(header.count, payload).expect("sound"), expected);
        }
    }

    #[test]
    fn a_panic_fails_its_batch_and_the_next_one_runs() {
        let (mut end, mut server) = ends();
        let mut batch = BytesMut::new();
        for id in [1, 2, 3] {
            FrameHeader { length: 0, kind: FrameKind::Batch, count: 0, id }.encode(&mut batch);
        }
        encode_control(FrameKind::Stop, &json!({}), &mut batch);
        server.write_all(&batch).expect("written");
        let mut turn = 0;
        end.run_batches(|_| {
            turn += 1;
            match turn {
                1 => panic!("the model is confused"),
                2 => panic!("capacity overflow"),
                _ => BatchOutcome::Items(Vec::new()),
            }
        })
        .expect("stopped");
        let failures = [(); 2].map(|()| decode_failed(&frame(&mut server).1).expect("sound"));
        assert_eq!(failures.map(|failure| failure.cause), [Cause::Raised, Cause::Memory]);
        assert_eq!(frame(&mut server).0.kind, FrameKind::Reply);
    }
}
