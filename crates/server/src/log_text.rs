//! Text of clients, archives and workers on its way into a log: whatever could forge a line or steer a
//! terminal is escaped, here and nowhere else.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with its control characters escaped, as in `\n` and `\x1b`; tabs stay.
pub fn escape(text: &str) -> Cow<'_, str> {
    if is_plain(text.as_bytes()) || !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        // Writing to memory does not fail.
        let _ = match character {
            '\n' => escaped.write_str("\\n"),
            '\r' => escaped.write_str("\\r"),
            steering if !steers(steering) => escaped.write_char(steering),
            short if u32::from(short) < 0x100 => write!(escaped, "\\x{:02x}", u32::from(short)),
            long => write!(escaped, "\\u{:04x}", u32::from(long)),
        };
    }
    Cow::Owned(escaped)
}

/// Escapes what was written to a buffer from `start` on.
pub(crate) fn escape_from(start: usize, buffer: &mut Vec<u8>) {
    let written = &buffer[start..];
    if is_plain(written) {
        return;
    }
    let escaped = escape(&String::from_utf8_lossy(written)).into_owned();
    buffer.truncate(start);
    buffer.extend_from_slice(escaped.as_bytes());
}

/// Whether it is printable ASCII, as nearly every text is; looked at without a branch per byte.
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |plain, byte| plain & (b' '..=b'~').contains(byte))
}

/// Control characters (C0, DEL, C1) but tabs, and Unicode's own ends of lines.
fn steers(character: char) -> bool {
    character.is_control() && character != '\t' || matches!(character, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_everything_else_stays() {
        for (text, expected) in [
            ("plain \t gr\u{fc}n \u{4e16} \\n", "plain \t gr\u{fc}n \u{4e16} \\n"),
            ("a\nb\r\nc", "a\\nb\\r\\nc"),
            ("\x1b[31m\0\x07\x7f", "\\x1b[31m\\x00\\x07\\x7f"),
            ("\u{85}\u{9b}\u{2028}\u{2029}", "\\x85\\x9b\\u2028\\u2029"),
        ] {
            assert_eq!(escape(text), expected);
            let mut buffer = b"kept\n".to_vec();
            buffer.extend_from_slice(text.as_bytes());
            escape_from(5, &mut buffer);
            assert_eq!(buffer, format!("kept\n{expected}").as_bytes());
        }
        assert!(matches!(escape("plain"), Cow::Borrowed(_)));
    }
}
