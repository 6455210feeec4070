//! The text format of protocol buffers, as configuration files are written in it: fields with a name and a
//! value, messages in braces, lists in brackets, comments after a hash. What the fields mean is not known
//! here; every field keeps its line for messages.
//!
//! A file comes from whoever put the model there, so depth and size are limited.

/// Messages inside messages; real files have five.
const DEPTH_MAX: usize = 32;

/// What is wrong with a configuration, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConfigError {
    pub(super) line: usize,
    pub(super) why: String,
}

/// One field; a repeated one stands there several times.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PbField {
    pub(super) name: String,
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) value: PbValue,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PbValue {
    /// Fields in braces.
    Message(Vec<PbField>),
    /// What stands in quotes.
    Text(String),
    /// A number, a truth value or a name of an enumeration.
    Word(String),
}

/// Reads the fields of a file.
pub(super) fn parse(text: &str) -> Result<Vec<PbField>, ConfigError> {
    let mut parser = TextParser { rest: text, line: 1, depth: 0 };
    parser.fields(None)
}

#[derive(Debug, PartialEq)]
enum TextToken {
    Word(String),
    Text(Vec<u8>),
    Sign(char),
    End,
}

struct TextParser<'a> {
    rest: &'a str,
    line: usize,
    depth: usize,
}

impl TextParser<'_> {
    /// The fields up to the closing sign, or to the end of the file.
    fn fields(&mut self, close: Option<char>) -> Result<Vec<PbField>, ConfigError> {
        let (opened, mut fields) = (self.line, Vec::new());
        loop {
            let token = self.token()?;
            let line = self.line;
            let name = match (token, close) {
                (TextToken::End, None) => return Ok(fields),
                (TextToken::End, Some(_)) => {
                    return Err(
                        self.wrong(format!("what is opened in line {opened} is not closed"))
                    );
                }
                (TextToken::Sign(sign), Some(close)) if sign == close => return Ok(fields),
                (TextToken::Word(word), _) if is_name(&word) => word,
                (other, _) => {
                    return Err(
                        self.wrong(format!("{} stands where a field's name should", shown(&other)))
                    );
                }
            };
            let typed = self.take(':');
            match self.peek() {
                Some('[') => {
                    self.take('[');
                    self.list(&name, line, &mut fields)?;
                }
                Some('{' | '<') => fields.push(PbField { value: self.message()?, name, line }),
                _ if typed => fields.push(PbField { value: self.scalar()?, name, line }),
                _ => {
                    return Err(self.wrong(format!("a colon or a brace is missing after {name:?}")));
                }
            }
            if !self.take(',') {
                self.take(';');
            }
        }
    }

    fn list(
        &mut self,
        name: &str,
        line: usize,
        fields: &mut Vec<PbField>,
    ) -> Result<(), ConfigError> {
        if self.take(']') {
            return Ok(());
        }
        loop {
            let value = match self.peek() {
                Some('{' | '<') => self.message()?,
                _ => self.scalar()?,
            };
            fields.push(PbField { name: name.to_owned(), line, value });
            if self.take(']') {
                return Ok(());
            }
            if !self.take(',') {
                return Err(self.wrong("a comma or a closing bracket is missing in a list"));
            }
        }
    }

    fn message(&mut self) -> Result<PbValue, ConfigError> {
        let close = if self.take('{') { '}' } else { '>' };
        if close == '>' {
            self.take('<');
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong(format!("more than {DEPTH_MAX} messages are inside each other")));
        }
        let fields = self.fields(Some(close))?;
        self.depth -= 1;
        Ok(PbValue::Message(fields))
    }

    /// A word, or strings one after the other, which are one.
    fn scalar(&mut self) -> Result<PbValue, ConfigError> {
        let mut bytes = match self.token()? {
            TextToken::Word(word) => return Ok(PbValue::Word(word)),
            TextToken::Text(bytes) => bytes,
            other @ (TextToken::Sign(_) | TextToken::End) => {
                return Err(self.wrong(format!("{} stands where a value should", shown(&other))));
            }
        };
        while let Some('"' | '\'') = self.peek() {
            if let TextToken::Text(more) = self.token()? {
                bytes.extend(more);
            }
        }
        String::from_utf8(bytes).map(PbValue::Text).map_err(|_| self.wrong("a string is not UTF-8"))
    }

    /// The next letter that is no space and no comment.
    fn peek(&mut self) -> Option<char> {
        loop {
            let trimmed = self.rest.trim_start();
            self.line += newlines(&self.rest[..self.rest.len() - trimmed.len()]);
            self.rest = trimmed;
            if !self.rest.starts_with('#') {
                return self.rest.chars().next();
            }
            self.rest = &self.rest[self.rest.find('\n').unwrap_or(self.rest.len())..];
        }
    }

    /// Takes this sign if it is the next.
    fn take(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(sign);
        if found {
            self.rest = &self.rest[sign.len_utf8()..];
        }
        found
    }

    fn token(&mut self) -> Result<TextToken, ConfigError> {
        let Some(first) = self.peek() else { return Ok(TextToken::End) };
        if first == '"' || first == '\'' {
            self.rest = &self.rest[1..];
            return self.text(first).map(TextToken::Text);
        }
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_.+-".contains(letter);
        let end = self.rest.find(|letter| !is_word(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end.max(first.len_utf8()));
        self.rest = rest;
        Ok(if end == 0 { TextToken::Sign(first) } else { TextToken::Word(word.to_owned()) })
    }

    /// A string up to its closing quote, without escapes.
    fn text(&mut self, quote: char) -> Result<Vec<u8>, ConfigError> {
        let mut bytes = Vec::new();
        loop {
            match self.letter() {
                None | Some('\n') => return Err(self.wrong("a string is not closed in its line")),
                Some(letter) if letter == quote => return Ok(bytes),
                Some('\\') => self.escape(&mut bytes)?,
                Some(letter) => push(&mut bytes, letter),
            }
        }
    }

    fn letter(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.rest = &self.rest[letter.len_utf8()..];
        Some(letter)
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), ConfigError> {
        let unknown = "a string has an escape that does not exist";
        let letter = self.letter().ok_or_else(|| self.wrong(unknown))?;
        match letter {
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'v' => bytes.push(11),
            'f' => bytes.push(12),
            '\\' | '\'' | '"' | '?' => push(bytes, letter),
            '0'..='7' => {
                let more = self.digits(8, 2);
                let code = u32::from_str_radix(&format!("{letter}{more}"), 8).unwrap_or(256);
                bytes.push(u8::try_from(code).map_err(|_| self.wrong(unknown))?);
            }
            'x' | 'X' => {
                let digits = self.digits(16, 2);
                bytes.push(u8::from_str_radix(&digits, 16).map_err(|_| self.wrong(unknown))?);
            }
            'u' | 'U' => {
                let digits = self.digits(16, if letter == 'u' { 4 } else { 8 });
                let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                push(bytes, code.ok_or_else(|| self.wrong(unknown))?);
            }
            _ => return Err(self.wrong(unknown)),
        }
        Ok(())
    }

    /// Up to so many digits.
    fn digits(&mut self, radix: u32, most: usize) -> String {
        let digits: String =
            self.rest.chars().take(most).take_while(|letter| letter.is_digit(radix)).collect();
        self.rest = &self.rest[digits.len()..];
        digits
    }

    fn wrong(&self, why: impl Into<String>) -> ConfigError {
        ConfigError { line: self.line, why: why.into() }
    }
}

fn push(bytes: &mut Vec<u8>, letter: char) {
    bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

fn is_name(word: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    word.chars().all(is_letter) && !word.starts_with(|letter: char| letter.is_ascii_digit())
}

fn shown(token: &TextToken) -> String {
    match token {
        TextToken::Word(word) => format!("{word:?}"),
        TextToken::Text(_) => "a string".to_owned(),
        TextToken::Sign(sign) => format!("{:?}", sign.to_string()),
        TextToken::End => "the end of the file".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, line: usize, value: PbValue) -> PbField {
        PbField { name: name.to_owned(), line, value }
    }

    fn word(text: &str) -> PbValue {
        PbValue::Word(text.to_owned())
    }

    #[test]
    fn every_way_of_writing_a_field_is_read() {
        let text = "name: \"a\" 'b' # a comment\nmax_batch_size: 8; dims: [ -1, 3 ]\n\
                    group { kind: KIND_CPU } list [ { x: 1 }, < x: 2 > ]\nempty: []\nmap: { k: 1.5e-3, }";
        let message = |x: &str, line| PbValue::Message(vec![field("x", line, word(x))]);
        assert_eq!(
            parse(text).unwrap(),
            [
                field("name", 1, PbValue::Text("ab".to_owned())),
                field("max_batch_size", 2, word("8")),
                field("dims", 2, word("-1")),
                field("dims", 2, word("3")),
                field("group", 3, PbValue::Message(vec![field("kind", 3, word("KIND_CPU"))])),
                field("list", 3, message("1", 3)),
                field("list", 3, message("2", 3)),
                field("map", 5, PbValue::Message(vec![field("k", 5, word("1.5e-3"))])),
            ]
        );
        assert_eq!(parse(" # nothing\n"), Ok(Vec::new()));
    }

    #[test]
    fn escapes_are_read() {
        let found = parse(r#"a: "\n\x41\101\u00e4\"\'\\""#).unwrap();
        assert_eq!(found[0].value, PbValue::Text("\nAA\u{e4}\"'\\".to_owned()));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, why) in [
            ("a: 1\nb {\n c: 2\n", 4, "what is opened in line 2 is not closed"),
            ("a: 1\n\nb 2", 3, "a colon or a brace is missing after \"b\""),
            ("a: \"x\n", 1, "a string is not closed in its line"),
            ("a: \"\\q\"", 1, "a string has an escape that does not exist"),
            ("a: \"\\xff\"", 1, "a string is not UTF-8"),
            ("a: [1 2]", 1, "a comma or a closing bracket is missing in a list"),
            ("a: }", 1, "\"}\" stands where a value should"),
            ("}", 1, "\"}\" stands where a field's name should"),
            ("1: 2", 1, "\"1\" stands where a field's name should"),
            ("ä: 2", 1, "\"ä\" stands where a field's name should"),
        ] {
            let expected = ConfigError { line, why: why.to_owned() };
            assert_eq!(parse(text), Err(expected), "{text:?}");
        }
        let deep = "a {".repeat(40);
        assert!(parse(&deep).unwrap_err().why.starts_with("more than 32 messages"));
    }
}
