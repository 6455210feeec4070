//! Walks protobuf messages in memory, strictly: what does not add up is an error, never a guess and
//! never a loop. It knows field numbers and wire types, no schema.

/// One field's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    /// A variable-length integer.
    Number(u64),
    /// Anything that carries its length: text, bytes, a message, packed numbers.
    Block(&'a [u8]),
    /// Four or eight bytes, which are not read.
    Fixed,
}

impl<'a> Field<'a> {
    /// The content of a field that carries its length.
    pub(super) fn block(self) -> Option<&'a [u8]> {
        match self {
            Self::Block(block) => Some(block),
            Self::Number(_) | Self::Fixed => None,
        }
    }
}

/// The bytes are no protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The fields of a message with their numbers; ends after the first error.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Result<(u64, Field<'_>), Malformed>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_none() {
            rest = &[];
        }
        Some(field.ok_or(Malformed))
    })
}

/// Whether a block is nothing but variable-length integers.
pub(super) fn is_packed_numbers(mut block: &[u8]) -> bool {
    while !block.is_empty() {
        if number(&mut block).is_none() {
            return false;
        }
    }
    true
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Field<'a>)> {
    let key = number(rest)?;
    let field = match key & 7 {
        0 => Field::Number(number(rest)?),
        1 => take(rest, 8).map(|_| Field::Fixed)?,
        2 => {
            let length = number(rest)?;
            Field::Block(take(rest, length)?)
        }
        5 => take(rest, 4).map(|_| Field::Fixed)?,
        // Groups, which ONNX never had, and types that do not exist.
        _ => return None,
    };
    Some((key >> 3, field))
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = tail;
    Some(head)
}

/// Seven bits a byte, the lowest first; ten bytes at most, of the tenth one bit.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (shift < 63 || *byte <= 1).then_some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_in_order_and_errors_end_them() {
        let message = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 0, 0, 0, 0, 0x0b, 0x08];
        let read: Vec<_> = fields(&message).collect();
        let expected = [
            Ok((1, Field::Number(150))),
            Ok((2, Field::Block(b"hi"))),
            Ok((3, Field::Fixed)),
            Err(Malformed),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn numbers_of_any_length_end() {
        assert!(is_packed_numbers(&[0x01, 0x80, 0x01]));
        let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert!(is_packed_numbers(&minus_one));
        assert!(!is_packed_numbers(&[0xff; 64]));
        assert!(!is_packed_numbers(&[0x80]));
    }
}
