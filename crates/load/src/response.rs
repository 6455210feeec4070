//! The bytes of an HTTP/1.1 answer: where its head ends, how long its body is, and where that ends.
//! Pure: bytes in, facts out.

use http::StatusCode;

use crate::answer::ExchangeFailure;

const HEADERS_MAX: usize = 100;
/// How much of an error's text is kept to find its reason.
const KEPT_MAX: usize = 4096;

/// What the head of an answer says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    /// Bytes of the head itself.
    pub(crate) length: usize,
    pub(crate) body: BodyEnd,
    /// Whether the connection ends with this answer.
    pub(crate) close: bool,
    pub(crate) retry_after: bool,
}

/// What ends the body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// So many bytes are left.
    After(u64),
    /// The last chunk.
    Chunked(Chunks),
    /// The end of the connection.
    WithConnection,
}

/// Reads a head, if all of it is there. A head that only announces another one (`100 Continue`) has
/// no body.
pub(crate) fn head(bytes: &[u8]) -> Result<Option<ResponseHead>, ExchangeFailure> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(ExchangeFailure::Malformed),
    };
    let (Some(status), Some(version)) = (response.code, response.version) else {
        return Err(ExchangeFailure::Malformed);
    };
    let mut found = ResponseHead {
        status,
        length,
        body: BodyEnd::WithConnection,
        close: version == 0,
        retry_after: false,
    };
    let mut chunked = false;
    for header in response.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") && !chunked {
            let text = std::str::from_utf8(header.value).map_err(|_| ExchangeFailure::Malformed)?;
            let length = text.trim().parse().map_err(|_| ExchangeFailure::Malformed)?;
            found.body = BodyEnd::After(length);
        } else if is("transfer-encoding") {
            chunked = true;
            found.body = BodyEnd::Chunked(Chunks::default());
        } else if is("connection") {
            let has = |word: &[u8]| {
                header
                    .value
                    .split(|byte| *byte == b',')
                    .any(|part| part.trim_ascii().eq_ignore_ascii_case(word))
            };
            found.close = has(b"close") || (found.close && !has(b"keep-alive"));
        } else if is("retry-after") {
            found.retry_after = true;
        }
    }
    if status < 200 || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        found.body = BodyEnd::After(0);
    }
    Ok(Some(found))
}

/// Follows a body to its end.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    end: BodyEnd,
    /// Bytes of the body so far.
    pub(crate) bytes: u64,
    /// Its beginning, if it is wanted.
    pub(crate) kept: Option<Vec<u8>>,
}

impl AnswerBody {
    pub(crate) fn new(end: BodyEnd, keep: bool) -> Self {
        Self { end, bytes: 0, kept: keep.then(Vec::new) }
    }

    /// Takes bytes, at most to the end of the body: how many it took, and whether that was the end.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(usize, bool), ExchangeFailure> {
        match &mut self.end {
            BodyEnd::After(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                let over = *left == 0;
                self.keep(&bytes[..taken]);
                Ok((taken, over))
            }
            BodyEnd::WithConnection => {
                self.keep(bytes);
                Ok((bytes.len(), false))
            }
            BodyEnd::Chunked(chunks) => {
                let mut chunks = std::mem::take(chunks);
                let fed = chunks.feed(bytes, |data| self.keep(data));
                self.end = BodyEnd::Chunked(chunks);
                fed
            }
        }
    }

    /// Whether the end of the connection is the end of the body.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.end == BodyEnd::WithConnection
    }

    /// Bytes that are known to come.
    pub(crate) fn left(&self) -> u64 {
        match &self.end {
            BodyEnd::After(left) => *left,
            BodyEnd::Chunked(_) | BodyEnd::WithConnection => 0,
        }
    }

    fn keep(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        if let Some(kept) = &mut self.kept {
            let room = KEPT_MAX.saturating_sub(kept.len()).min(data.len());
            kept.extend_from_slice(&data[..room]);
        }
    }
}

/// A body in chunks: where its reader is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunks {
    stage: ChunkStage,
    /// Bytes left of the chunk, or its size so far.
    size: u64,
    /// Bytes of this line so far.
    written: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkStage {
    #[default]
    Size,
    /// After the size, to the end of its line.
    Extension,
    Data,
    /// The end of the line after a chunk.
    DataEnd,
    /// A line after the last chunk; an empty one is the end.
    Trailer,
}

impl Chunks {
    fn feed(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), ExchangeFailure> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.stage {
                ChunkStage::Data => {
                    let room = usize::try_from(self.size).unwrap_or(usize::MAX);
                    let taken = (bytes.len() - at).min(room);
                    data(&bytes[at..at + taken]);
                    self.size -= taken as u64;
                    at += taken;
                    if self.size == 0 {
                        self.stage = ChunkStage::DataEnd;
                    }
                    continue;
                }
                ChunkStage::Size => match char::from(byte).to_digit(16) {
                    Some(digit) if self.size <= u64::MAX >> 8 => {
                        self.size = self.size * 16 + u64::from(digit);
                        self.written += 1;
                    }
                    Some(_) => return Err(ExchangeFailure::Malformed),
                    None if self.written == 0 => return Err(ExchangeFailure::Malformed),
                    None if byte == b'\n' => self.data_begins(),
                    None => self.stage = ChunkStage::Extension,
                },
                ChunkStage::Extension if byte == b'\n' => self.data_begins(),
                ChunkStage::Extension => {}
                ChunkStage::DataEnd if byte == b'\n' => {
                    *self = Self::default();
                }
                ChunkStage::DataEnd if byte == b'\r' => {}
                ChunkStage::DataEnd => return Err(ExchangeFailure::Malformed),
                ChunkStage::Trailer if byte == b'\n' && self.written == 0 => {
                    return Ok((at + 1, true));
                }
                ChunkStage::Trailer if byte == b'\n' => self.written = 0,
                ChunkStage::Trailer if byte == b'\r' => {}
                ChunkStage::Trailer => self.written += 1,
            }
            at += 1;
        }
        Ok((at, false))
    }

    fn data_begins(&mut self) {
        self.written = 0;
        self.stage = if self.size == 0 { ChunkStage::Trailer } else { ChunkStage::Data };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> ResponseHead {
        head(text.as_bytes()).expect("a head").expect("all of it")
    }

    #[test]
    fn a_head_says_how_long_the_body_is() {
        let found = whole("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nbody");
        assert_eq!((found.status, found.length, &found.body), (200, 39, &BodyEnd::After(12)));
        assert!(!found.close && !found.retry_after);
        let chunked = BodyEnd::Chunked(Chunks::default());
        let both = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(whole(both).body, chunked, "chunks win over a length");
        assert_eq!(whole("HTTP/1.1 200 OK\r\n\r\n").body, BodyEnd::WithConnection);
        assert_eq!(whole("HTTP/1.1 204 No Content\r\n\r\n").body, BodyEnd::After(0));
        assert_eq!(whole("HTTP/1.1 100 Continue\r\n\r\n").body, BodyEnd::After(0));
        let rejected =
            "HTTP/1.1 503 No\r\nretry-after: 1\r\nconnection: Close\r\ncontent-length: 0\r\n\r\n";
        assert!(whole(rejected).close && whole(rejected).retry_after);
        assert!(whole("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n").close);
    }

    #[test]
    fn a_head_that_is_cut_or_wrong_is_told_apart() {
        assert_eq!(head(b"HTTP/1.1 200 OK\r\nContent-Le"), Ok(None));
        for wrong in ["HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"]
        {
            assert_eq!(head(wrong.as_bytes()), Err(ExchangeFailure::Malformed), "{wrong}");
        }
    }

    /// Feeds a text in pieces of so many bytes: the body, and what is left after it.
    fn fed(end: BodyEnd, text: &str, piece: usize) -> Result<(String, String), ExchangeFailure> {
        let mut reader = AnswerBody::new(end, true);
        let mut rest = text.as_bytes();
        loop {
            let now = &rest[..piece.min(rest.len())];
            let (taken, over) = reader.feed(now)?;
            rest = &rest[taken..];
            if over || rest.is_empty() {
                let body = String::from_utf8(reader.kept.unwrap_or_default()).expect("text");
                return Ok((body, String::from_utf8_lossy(rest).into_owned()));
            }
        }
    }

    #[test]
    fn a_body_ends_at_the_same_place_however_it_comes() {
        let chunks =
            "4\r\nWiki\r\n6;x=1\r\npedia \r\nB\r\nin \r\nchunks\r\n0\r\nTrailer: 1\r\n\r\nNEXT";
        for piece in 1..chunks.len() {
            let chunked = fed(BodyEnd::Chunked(Chunks::default()), chunks, piece);
            assert_eq!(chunked, Ok(("Wikipedia in \r\nchunks".to_owned(), "NEXT".to_owned())));
            let sized = fed(BodyEnd::After(4), "bodyNEXT", piece);
            assert_eq!(sized, Ok(("body".to_owned(), "NEXT".to_owned())));
        }
        for wrong in ["x\r\n", "3\r\nabcd\r\n", "ffffffffffffffffff\r\n"] {
            let end = BodyEnd::Chunked(Chunks::default());
            assert_eq!(fed(end, wrong, 100), Err(ExchangeFailure::Malformed), "{wrong}");
        }
    }
}
