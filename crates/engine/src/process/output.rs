//! What a process prints: each line of text goes to a sink. Lines are bounded: a longer one comes in pieces.

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

/// Bytes of a line that a sink is given at once.
pub(crate) const OUTPUT_PIECE_MAX: u64 = 8 * 1024;

/// Takes what a process prints on one of its streams.
pub(crate) trait OutputSink: Send + 'static {
    /// The next line, or a piece of one; `begins`: whether a line begins here.
    fn take(&mut self, piece: &[u8], begins: bool);
}

/// Reads a pipe to its end.
pub(super) async fn read_pipe(pipe: Option<impl AsyncRead + Unpin>, sink: impl OutputSink) {
    if let Some(pipe) = pipe {
        read_pieces(BufReader::new(pipe), sink).await;
    }
}

pub(crate) async fn read_pieces(mut pipe: impl AsyncBufRead + Unpin, mut sink: impl OutputSink) {
    let (mut piece, mut begins) = (Vec::new(), true);
    loop {
        piece.clear();
        match (&mut pipe).take(OUTPUT_PIECE_MAX).read_until(b'\n', &mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        sink.take(&piece, begins);
        begins = piece.ends_with(b"\n");
    }
}
