//! The sizes of values in JSON, by one pass over its bytes that builds nothing.
//!
//! It looks for brackets, commas and quotes and believes the rest, since the worker reads the body
//! properly: what this file takes for an array of five is at worst no JSON at all. Depth costs
//! nothing but a counter.

use std::borrow::Cow;

use super::extent::{DIMS_MAX, Extent};
use crate::store::ValueForm;

/// The bytes that matter inside lists and objects.
const MARKS: [bool; 256] = {
    let mut marks = [false; 256];
    let mut at = 0;
    while at < 6 {
        marks[b"[]{},\""[at] as usize] = true;
        at += 1;
    }
    marks
};

/// A place in JSON text.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> JsonReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next byte that is no white space.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.at)?, b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    /// Reads a value's size; none if the text ends too soon.
    pub(super) fn extent(&mut self, form: ValueForm) -> Option<Extent> {
        let mut extent = Extent::default();
        match self.peek()? {
            b'[' => self.list(&mut extent, 0)?,
            b'{' if form == ValueForm::Frame => extent.set(0, self.table()?),
            b'{' => extent.set(0, self.object(|reader, _| reader.skip())?),
            b'"' => {
                let text = unquoted(self.string()?);
                let bytes = form == ValueForm::Bytes;
                extent.set(0, if bytes { text.len() as u64 } else { characters(&text) });
            }
            _ => self.skip()?,
        }
        Some(extent)
    }

    /// Reads a list; lists in its first element are further dimensions.
    fn list(&mut self, extent: &mut Extent, dim: usize) -> Option<()> {
        self.at += 1;
        let count = match self.peek()? {
            b']' => {
                self.at += 1;
                0
            }
            b'[' if dim + 1 < DIMS_MAX => {
                self.list(extent, dim + 1)?;
                1 + self.rest()?
            }
            _ => 1 + self.rest()?,
        };
        extent.set(dim, count);
        Some(())
    }

    /// Goes past what is left of a list or object, with its closing bracket, and counts its commas.
    fn rest(&mut self) -> Option<u64> {
        let (mut commas, mut depth) = (0, 0_usize);
        loop {
            let rest = self.bytes.get(self.at..)?;
            self.at += rest.iter().position(|byte| MARKS[usize::from(*byte)])?;
            match self.bytes.get(self.at)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b',' => commas += u64::from(depth == 0),
                b'[' | b'{' => depth += 1,
                _ if depth == 0 => {
                    self.at += 1;
                    return Some(commas);
                }
                _ => depth -= 1,
            }
            self.at += 1;
        }
    }

    /// Reads an object of columns: its rows.
    fn table(&mut self) -> Option<u64> {
        let mut rows = None;
        self.object(|reader, _| {
            if rows.is_none() && reader.peek()? == b'[' {
                let mut column = Extent::default();
                reader.list(&mut column, 0)?;
                rows = column.dim(0);
                return Some(());
            }
            rows.get_or_insert(1);
            reader.skip()
        })?;
        Some(rows.unwrap_or(0))
    }

    /// Reads an object and counts its keys; `entry` reads each value by its key, or ends it all.
    pub(super) fn object(
        &mut self,
        mut entry: impl FnMut(&mut Self, &[u8]) -> Option<()>,
    ) -> Option<u64> {
        let mut keys = 0;
        self.expect(b'{')?;
        let mut next = self.peek()?;
        while next != b'}' {
            if next != b'"' {
                return None;
            }
            let key = unquoted(self.string()?);
            self.expect(b':')?;
            entry(self, &key)?;
            keys += 1;
            next = self.peek()?;
            if next == b',' {
                self.at += 1;
                next = self.peek()?;
            } else if next != b'}' {
                return None;
            }
        }
        self.at += 1;
        Some(keys)
    }

    /// Goes past a value of any depth.
    pub(super) fn skip(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'[' | b'{' => {
                self.at += 1;
                self.rest().map(drop)
            }
            b',' | b':' | b']' | b'}' => None,
            _ => {
                let ends = |byte: &u8| {
                    matches!(byte, b',' | b']' | b'}' | b':' | b' ' | b'\t' | b'\n' | b'\r')
                };
                let rest = &self.bytes[self.at..];
                self.at += rest.iter().position(ends).unwrap_or(rest.len());
                Some(())
            }
        }
    }

    /// A text with its quotes, which begins here.
    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.at += 1;
        loop {
            match self.bytes.get(self.at)? {
                b'\\' => self.at += 2,
                b'"' => break,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        self.bytes.get(start..self.at)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.peek().filter(|next| *next == byte)?;
        self.at += 1;
        Some(())
    }

    /// A number without sign, point and exponent.
    fn whole(&mut self) -> Option<u64> {
        self.peek()?;
        let start = self.at;
        self.skip()?;
        std::str::from_utf8(&self.bytes[start..self.at]).ok()?.parse().ok()
    }
}

/// The first dimension of the first input of an Open Inference request.
pub(super) fn open_inference(body: &[u8]) -> Option<u64> {
    let mut found = None;
    // Ends where the number is found.
    let _ = JsonReader::new(body).object(|body, key| {
        if key != b"inputs" {
            return body.skip();
        }
        body.expect(b'[')?;
        body.object(|input, key| {
            if key != b"shape" {
                return input.skip();
            }
            input.expect(b'[')?;
            found = input.whole();
            None
        })?;
        None
    });
    found
}

/// The bytes that a text stands for.
fn unquoted(quoted: &[u8]) -> Cow<'_, [u8]> {
    let inside = &quoted[1..quoted.len() - 1];
    if !inside.contains(&b'\\') {
        return Cow::Borrowed(inside);
    }
    // Python reads half a pair of surrogates, which is no text here; its length is a guess.
    let text = serde_json::from_slice::<String>(quoted);
    text.map_or(Cow::Borrowed(inside), |text| Cow::Owned(text.into_bytes()))
}

/// The characters of a UTF-8 text.
pub(super) fn characters(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64
}

#[cfg(test)]
mod tests;
