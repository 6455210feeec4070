//! JSON as TorchServe's lenient library reads it: names and values in single quotes, or in none, and `;` or `=` for `,` or `:`. Shell scripts are full of it. Only flat objects of
//! plain values are read, and only after strict JSON was tried.

/// The fields of such an object, without those that are null; nothing if it is none.
pub(super) fn object(body: &[u8]) -> Option<Vec<(String, String)>> {
    let mut rest = LenientReader(std::str::from_utf8(body).ok()?);
    let mut fields = Vec::new();
    rest.take(&['{'])?;
    while rest.take(&['}']).is_none() {
        if !fields.is_empty() {
            rest.take(&[',', ';'])?;
        }
        let (name, _) = rest.text()?;
        rest.take(&[':', '='])?;
        fields.push((name, rest.text()?));
    }
    let over = rest.0.trim_start().is_empty();
    let fields = fields.into_iter();
    let present = fields.filter(|(_, (text, quoted))| *quoted || text != "null");
    over.then(|| present.map(|(name, (text, _))| (name, text)).collect())
}

/// What was not read yet.
struct LenientReader<'a>(&'a str);

impl LenientReader<'_> {
    /// Takes one of these marks if it is next.
    fn take(&mut self, marks: &[char]) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(marks)?;
        Some(())
    }

    /// Takes a name or a value, and whether it was quoted.
    fn text(&mut self) -> Option<(String, bool)> {
        self.0 = self.0.trim_start();
        if let Some(quote) = self.0.chars().next().filter(|letter| "'\"".contains(*letter)) {
            self.0 = &self.0[1..];
            return self.quoted(quote).map(|text| (text, true));
        }
        let ends = |letter: char| letter.is_whitespace() || ",;:={}[]'\"\\/#".contains(letter);
        let length = self.0.find(ends).unwrap_or(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        (!text.is_empty()).then(|| (text.to_owned(), false))
    }

    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        let mut letters = self.0.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                letter if letter == quote => {
                    self.0 = &self.0[at + letter.len_utf8()..];
                    return Some(text);
                }
                '\\' => text.push(escaped(letters.by_ref().map(|(_, letter)| letter))?),
                letter => text.push(letter),
            }
        }
        None
    }
}

fn escaped(mut letters: impl Iterator<Item = char>) -> Option<char> {
    Some(match letters.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => {
            let digits: String = letters.take(4).collect();
            char::from_u32(u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4)?)?
        }
        plain @ ('\\' | '/' | '\'' | '"') => plain,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_may_be_single_or_missing() {
        for (text, expected) in [
            (
                "{'url':'a.mar', 'initial_workers':'1'}",
                &[("url", "a.mar"), ("initial_workers", "1")][..],
            ),
            ("{url: a.mar; batch_size = 3}", &[("url", "a.mar"), ("batch_size", "3")]),
            (" {'a' : \"b\" , 'n': null} ", &[("a", "b")]),
            (
                "{'n': 'null', 'q': 'it\\'s', 'u': '\\u00fc'}",
                &[("n", "null"), ("q", "it's"), ("u", "ü")],
            ),
            ("{}", &[]),
        ] {
            let read = object(text.as_bytes()).expect(text);
            let expected: Vec<_> =
                expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_flat_object_is_not_read() {
        for text in [
            "",
            "{",
            "}",
            "x",
            "[1]",
            "{'a'}",
            "{'a':}",
            "{'a':1",
            "{'a':1}}",
            "{'a':1,,'b':2}",
            "{'a':[1]}",
            "{'a':{}}",
            "{'a':'b}",
            "{'a':'\\x'}",
            "{'a':'\\u12'}",
            "{'a' 'b'}",
        ] {
            assert_eq!(object(text.as_bytes()), None, "{text}");
        }
        assert_eq!(object(b"{'a':'\xff'}"), None);
    }
}
