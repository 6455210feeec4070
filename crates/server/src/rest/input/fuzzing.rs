//! What must hold for every form, whatever its bytes. `fuzz/` looks for bytes for which it does not; the
//! tests try those of `fuzz/corpus` again.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyDataStream, Full};
use jitney_engine::call::{PARAMETERS_MAX, ValueBytes};
use jitney_settings::Dialect;
use tokio::runtime::{Builder, Runtime};

use super::{body_parameters, boundary, multipart};
use crate::query::RequestFields;

/// Reads a line with a content type, and the body after it; and the line as a query.
pub fn forms(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (content_type, body) = bytes.split_at(end);
    let body = Bytes::copy_from_slice(body.get(1..).unwrap_or_default());
    query(&String::from_utf8_lossy(content_type));
    let Ok(content_type) = HeaderValue::from_bytes(content_type) else { return };
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type)]);
    for dialect in [Dialect::TorchServe, Dialect::Jitney] {
        form(dialect, &headers, &body);
    }
    if let Ok(Some(boundary)) = boundary(&headers) {
        multipart_form(&boundary, &body);
    }
}

/// However a multipart body came, its parts are those that multer reads from the whole.
fn multipart_form(boundary: &str, body: &Bytes) {
    let whole = runtime().block_on(read_by_multer(boundary, body.clone()));
    for size in [1, 2, 7, 64, body.len().max(1)] {
        let pieces = body.chunks(size).map(Bytes::copy_from_slice).collect();
        let (pieces, mut parameters) = (ValueBytes::from_pieces(pieces), Vec::new());
        let read = runtime().block_on(multipart(boundary.to_owned(), pieces, &mut parameters));
        let parts = parameters.into_iter().map(|it| (it.name.into_owned(), it.value.into_whole()));
        match &whole {
            Some(whole) if whole.len() <= PARAMETERS_MAX => {
                assert!(read.is_ok() && parts.eq(whole.iter().cloned()), "in pieces of {size}");
            }
            Some(_) => assert!(read.is_err()),
            None => assert!(read.is_err() || body.is_empty()),
        }
    }
}

async fn read_by_multer(boundary: &str, body: Bytes) -> Option<Vec<(String, Bytes)>> {
    let (stream, mut read) = (BodyDataStream::new(Full::new(body)), Vec::new());
    let mut parts = multer::Multipart::new(stream, boundary);
    while let Some(part) = parts.next_field().await.ok()? {
        read.push((part.name().unwrap_or("").to_owned(), part.bytes().await.ok()?));
    }
    Some(read)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}

fn form(dialect: Dialect, headers: &HeaderMap, body: &Bytes) {
    let mut parameters = Vec::new();
    let read = body_parameters(dialect, headers, body.clone().into(), &mut parameters);
    let read = runtime().block_on(read);
    let values: usize = parameters.iter().map(|parameter| parameter.value.len()).sum();
    assert!(values <= body.len(), "a value of {values} bytes from {}", body.len());
    match read {
        Ok(()) => assert!(parameters.len() <= body.len() + 1, "a field takes a byte at least"),
        Err(problem) => {
            assert!((400..500).contains(&problem.status), "a client's mistake: {problem:?}");
        }
    }
}

/// A query never has more text than was sent, and every field is found by its name.
fn query(text: &str) {
    let fields = RequestFields::from_query(Some(text));
    let mut length = 0;
    for (name, value) in fields.iter() {
        // A byte that is no text becomes a mark of three.
        length += name.len() + value.len();
        assert!(fields.text(name).is_some(), "{name:?} of {text:?}");
    }
    assert!(length <= 3 * text.len());
}

#[cfg(test)]
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/forms");
    for file in std::fs::read_dir(corpus).unwrap() {
        forms(&std::fs::read(file.unwrap().path()).unwrap());
    }
}
