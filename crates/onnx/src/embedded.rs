//! The model inside the program: Magika, which tells what kind of file it is given. It makes
//! `jitney serve` answer something meaningful on a machine that has nothing but the binary. Its
//! files, source and licence are in `models/magika`.

use std::borrow::Cow;

use super::card::Card;
use super::model::{OnnxError, OnnxSession};

const MODEL: &[u8] =
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/magika/model.onnx"));
const CARD: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/magika/model.yaml"));
const LABELS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/magika/labels.txt"));

/// Loads the embedded Magika.
///
/// # Errors
/// Only if the files were damaged before the program was built.
pub fn magika() -> Result<OnnxSession, OnnxError> {
    let card = Card::parse(CARD, |_| Ok(LABELS.to_owned()))
        .map_err(|reason| OnnxError::Card { name: "magika".to_owned(), reason })?;
    OnnxSession::from_bytes("magika", Cow::Borrowed(MODEL), card)
}
