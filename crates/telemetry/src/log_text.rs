//! Text of clients, archives and workers on its way into a log: whatever could forge a line or steer a
//! terminal is escaped, here and nowhere else.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use jitney_net::{push_number, push_thousandths};

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
pub fn escape_from(start: usize, buffer: &mut Vec<u8>) {
    let written = &buffer[start..];
    if is_plain(written) {
        return;
    }
    let escaped = escape(&String::from_utf8_lossy(written)).into_owned();
    buffer.truncate(start);
    buffer.extend_from_slice(escaped.as_bytes());
}

/// The time of a line, as `2025-01-01T00:00:00,123`. Its text is kept for the lines that follow.
#[derive(Debug, Default)]
pub struct LogClock {
    /// The second and the millisecond whose text this is.
    second: u64,
    millis: u32,
    text: Vec<u8>,
    /// The same second as a number.
    number: Vec<u8>,
}

/// How the text of a second ends where that of its milliseconds begins.
const SECOND_LEN: usize = "2025-01-01T00:00:00,".len();

impl LogClock {
    /// Appends the time since the epoch.
    pub fn push(&mut self, now: Duration, line: &mut Vec<u8>) {
        let (second, millis) = (now.as_secs(), now.subsec_millis());
        let other_second = self.second != second || self.text.is_empty();
        if other_second {
            self.second = second;
            let at = UNIX_EPOCH + Duration::from_secs(second);
            self.text = humantime::format_rfc3339_seconds(at).to_string().into_bytes();
            self.text.truncate(SECOND_LEN - 1);
            self.text.push(b',');
            self.number.clear();
            push_number(&mut self.number, second);
        }
        if other_second || self.millis != millis {
            self.millis = millis;
            self.text.truncate(SECOND_LEN);
            push_thousandths(&mut self.text, millis);
        }
        line.extend_from_slice(&self.text);
    }

    /// The second of the time that was appended last.
    pub fn second(&self) -> &[u8] {
        &self.number
    }
}

/// Whether it is printable ASCII, as nearly every text is; looked at without a branch per byte.
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |plain, byte| plain & (b' '..=b'~').contains(byte))
}

/// Control characters (C0, DEL, C1) but tabs, Unicode's own ends of lines, and what turns the direction of a text,
/// so that a line reads as what it is not.
pub fn steers(character: char) -> bool {
    character.is_control() && character != '\t'
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_by_the_library() {
        let mut clock = LogClock::default();
        for (millis, expected) in [
            (1_735_689_600_123, "2025-01-01T00:00:00,123"),
            (1_735_689_600_009, "2025-01-01T00:00:00,009"),
            (1_735_776_001_990, "2025-01-02T00:00:01,990"),
        ] {
            let mut line = Vec::new();
            clock.push(Duration::from_millis(millis), &mut line);
            assert_eq!(line, expected.as_bytes());
            assert_eq!(clock.second(), (millis / 1000).to_string().as_bytes());
        }
    }

    #[test]
    fn control_characters_are_escaped_and_everything_else_stays() {
        for (text, expected) in [
            ("plain \t gr\u{fc}n \u{4e16} \\n", "plain \t gr\u{fc}n \u{4e16} \\n"),
            ("a\nb\r\nc", "a\\nb\\r\\nc"),
            ("\x1b[31m\0\x07\x7f", "\\x1b[31m\\x00\\x07\\x7f"),
            ("\u{85}\u{9b}\u{2028}\u{2029}", "\\x85\\x9b\\u2028\\u2029"),
            (
                "\u{202a}\u{202e}\u{2066}\u{2069}\u{200f}\u{61c}",
                "\\u202a\\u202e\\u2066\\u2069\\u200f\\u061c",
            ),
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
