//! Reads rows ahead on a thread of its own, a few chunks at most, so that a slow disk or pipe does not
//! delay the rows in flight.

use std::vec;

use tokio::sync::mpsc;

use super::row::{InputRow, RowSource};
use crate::failure::{Failure, cannot};

/// The most rows and bytes of a chunk; it is smaller if the next row is not there yet.
const CHUNK_ROWS: usize = 256;
const CHUNK_BYTES: usize = 4 << 20;

/// Chunks that are read ahead.
const AHEAD: usize = 4;

type Chunk = Result<Vec<InputRow>, Failure>;

/// The rows of an input.
pub struct ReadAhead {
    chunks: mpsc::Receiver<Chunk>,
    chunk: vec::IntoIter<InputRow>,
}

impl ReadAhead {
    /// Starts the thread, which ends with the input or when this value is dropped.
    pub fn start(source: Box<dyn RowSource>) -> Result<Self, Failure> {
        let (sender, chunks) = mpsc::channel(AHEAD);
        let thread = std::thread::Builder::new().name("reader".to_owned());
        thread.spawn(move || feed(source, &sender)).map_err(cannot("start the reader thread"))?;
        Ok(Self { chunks, chunk: Vec::new().into_iter() })
    }

    /// The next row; `None` after the last. Cancelling this call loses nothing.
    pub async fn next(&mut self) -> Result<Option<InputRow>, Failure> {
        loop {
            if let Some(row) = self.chunk.next() {
                return Ok(Some(row));
            }
            match self.chunks.recv().await {
                None => return Ok(None),
                Some(chunk) => self.chunk = chunk?.into_iter(),
            }
        }
    }
}

fn feed(mut source: Box<dyn RowSource>, sender: &mpsc::Sender<Chunk>) {
    loop {
        let (rows, ended) = chunk(source.as_mut());
        if !rows.is_empty() && sender.blocking_send(Ok(rows)).is_err() {
            return;
        }
        match ended {
            None => {}
            Some(Ok(())) => return,
            Some(Err(failure)) => {
                // An error means that nobody reads any more.
                let _ = sender.blocking_send(Err(failure));
                return;
            }
        }
    }
}

/// The next rows, and how the input ended, if it did: those before a failure are read.
fn chunk(source: &mut dyn RowSource) -> (Vec<InputRow>, Option<Result<(), Failure>>) {
    let (mut rows, mut bytes) = (Vec::with_capacity(CHUNK_ROWS), 0);
    while rows.len() < CHUNK_ROWS && bytes < CHUNK_BYTES && (rows.is_empty() || source.is_ready()) {
        match source.next() {
            Ok(Some(row)) => {
                bytes += row.content.len();
                rows.push(row);
            }
            Ok(None) => return (rows, Some(Ok(()))),
            Err(failure) => return (rows, Some(Err(failure))),
        }
    }
    (rows, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::row::RowContent;

    struct Numbers(u64, u64);

    impl RowSource for Numbers {
        fn next(&mut self) -> Result<Option<InputRow>, Failure> {
            if self.0 == self.1 {
                return Err(Failure::failed("broken"));
            }
            let number = self.0;
            self.0 += 1;
            let content = RowContent::Json(bytes::Bytes::from_static(b"1"));
            Ok(Some(InputRow { number, next: number + 1, content }))
        }
    }

    #[tokio::test]
    async fn rows_come_in_order() {
        let mut rows = ReadAhead::start(Box::new(Numbers(0, 10_000))).expect("starts");
        for number in 0..9000 {
            let row = rows.next().await.expect("reads").expect("a row");
            assert_eq!(row.number, number);
        }
    }

    #[tokio::test]
    async fn a_failure_of_the_source_is_passed_on() {
        let mut rows = ReadAhead::start(Box::new(Numbers(0, 3))).expect("starts");
        for _ in 0..3 {
            assert!(rows.next().await.is_ok(), "the rows before it are not lost");
        }
        assert!(rows.next().await.is_err());
    }
}
