//! JSON answers whose numbers were taken out: the worker sends `float32` numbers as they lie in memory, and they are
//! written here, each with as few digits as tell it from the next one. A worker in Python would take longer over
//! a vector's text than over the vector.

use bytes::{Buf as _, Bytes};

/// Letters of a number, on average, and a comma.
const NUMBER_LEN: usize = 13;
const NUMBER_BYTES: usize = size_of::<f32>();

/// The whole text. The meta goes on with `{u32 count}`, then so many `{u32 text_len, u32 numbers_len}`: the body has a
/// text, the numbers behind it, and so on, and a last text. None where a length exceeds the body.
pub(super) fn decode(meta: &mut Bytes, mut body: Bytes) -> Option<Bytes> {
    let mut length = || meta.try_get_u32_le().ok();
    let count = length()?;
    let mut text = Vec::with_capacity(body.len() / NUMBER_BYTES * NUMBER_LEN);
    for _ in 0..count {
        let (text_len, numbers_len) = (length()? as usize, length()? as usize);
        if body.len() < text_len + numbers_len || !numbers_len.is_multiple_of(NUMBER_BYTES) {
            return None;
        }
        text.extend_from_slice(&body.split_to(text_len));
        write_numbers(body.split_to(numbers_len), &mut text);
    }
    text.extend_from_slice(&body);
    Some(Bytes::from(text))
}

/// Numbers with commas between them; those that JSON does not have are `null`.
fn write_numbers(mut numbers: Bytes, text: &mut Vec<u8>) {
    while let Ok(number) = numbers.try_get_f32_le() {
        let written = serde_json::to_writer(&mut *text, &number);
        debug_assert!(written.is_ok(), "memory takes every number");
        if numbers.has_remaining() {
            text.push(b',');
        }
    }
}
