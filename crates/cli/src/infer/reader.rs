//! Reads ahead on a thread of its own, so that disks and pipes never hold up the rows under way. It
//! is a few chunks ahead at most.

use std::vec;

use tokio::sync::mpsc;

use super::row::Row;
use super::source::Source;
use crate::failure::Failure;

/// Rows that travel together, unless they are large or the next one has to be waited for.
const CHUNK_ROWS: usize = 256;
const CHUNK_BYTES: usize = 4 << 20;

/// Chunks that wait.
const AHEAD: usize = 4;

type Chunk = Result<Vec<Row>, Failure>;

/// The rows that were read.
pub struct Rows {
    chunks: mpsc::Receiver<Chunk>,
    chunk: vec::IntoIter<Row>,
}

impl Rows {
    /// Starts to read. The thread ends with the input, or when nobody wants its rows any more.
    pub fn read(source: Box<dyn Source>) -> Result<Self, Failure> {
        let (sender, chunks) = mpsc::channel(AHEAD);
        let thread = std::thread::Builder::new().name("reader".to_owned());
        thread
            .spawn(move || feed(source, &sender))
            .map_err(|error| Failure::failed(format!("cannot start the reader: {error}")))?;
        Ok(Self { chunks, chunk: Vec::new().into_iter() })
    }

    /// The next row; `None` after the last. Giving up on it loses nothing.
    pub async fn next(&mut self) -> Result<Option<Row>, Failure> {
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

fn feed(mut source: Box<dyn Source>, sender: &mpsc::Sender<Chunk>) {
    loop {
        let chunk = chunk(source.as_mut());
        let last = !matches!(&chunk, Ok(rows) if !rows.is_empty());
        let empty = matches!(&chunk, Ok(rows) if rows.is_empty());
        if empty || sender.blocking_send(chunk).is_err() || last {
            return;
        }
    }
}

/// The next rows; none when the input has ended.
fn chunk(source: &mut dyn Source) -> Chunk {
    let (mut rows, mut bytes) = (Vec::with_capacity(CHUNK_ROWS), 0);
    while rows.len() < CHUNK_ROWS && bytes < CHUNK_BYTES && (rows.is_empty() || source.at_hand()) {
        let Some(row) = source.next()? else { break };
        bytes += row.bytes();
        rows.push(row);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::row::Given;

    struct Numbers(u64, u64);

    impl Source for Numbers {
        fn next(&mut self) -> Result<Option<Row>, Failure> {
            if self.0 == self.1 {
                return Err(Failure::failed("broken"));
            }
            let number = self.0;
            self.0 += 1;
            let given = Given::Json(bytes::Bytes::from_static(b"1"));
            Ok(Some(Row { number, next: number + 1, given }))
        }
    }

    #[tokio::test]
    async fn rows_come_in_order() {
        let mut rows = Rows::read(Box::new(Numbers(0, 10_000))).expect("starts");
        for number in 0..9000 {
            let row = rows.next().await.expect("reads").expect("a row");
            assert_eq!(row.number, number);
        }
    }

    #[tokio::test]
    async fn what_breaks_the_input_is_told() {
        let mut rows = Rows::read(Box::new(Numbers(0, 0))).expect("starts");
        assert!(rows.next().await.is_err());
    }
}
