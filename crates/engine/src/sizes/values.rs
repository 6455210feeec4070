//! The sizes of a call's arguments as handles send them; `protocol/handles.md` has the format. Nothing is
//! built: arrays tell their shape, and everything else is counted or gone past.

use super::extent::{DIMS_MAX, Extent};
use super::json::characters;
use crate::store::ValueForm;

/// Values inside values; the worker rejects deeper ones.
const DEPTH_MAX: usize = 64;
/// Dimensions that an array may have.
const RANK_MAX: u8 = 32;

/// A place in encoded values.
#[derive(Clone, Copy, Debug)]
struct ValueReader<'a>(&'a [u8]);

/// Tells the sizes of the arguments of a call that `form` wants, by place or by name.
pub(super) fn arguments(
    call: &[u8],
    form: impl Fn(ArgumentName<'_>) -> Option<(usize, ValueForm)>,
    mut tell: impl FnMut(usize, Extent),
) -> Option<()> {
    let mut reader = ValueReader(call);
    let mut count = reader.tuple()?;
    // Places and names, where the call has names.
    let mut named = reader;
    let has_names = count == 2 && named.0.first() == Some(&b't') && {
        named.skip(0)?;
        named.0.first() == Some(&b'd')
    };
    if has_names {
        count = reader.tuple()?;
    }
    for place in 0..count {
        match form(ArgumentName::Position(place as usize)) {
            Some((param, form)) => tell(param, reader.extent(form)?),
            None => reader.skip(0)?,
        }
    }
    if !has_names {
        return Some(());
    }
    named.tag()?;
    for _ in 0..named.size()? {
        let mut key = named;
        named.skip(0)?;
        let name = (key.tag()? == b's').then(|| key.sized()).flatten();
        match name.and_then(|name| form(ArgumentName::Name(name))) {
            Some((param, form)) => tell(param, named.extent(form)?),
            None => named.skip(0)?,
        }
    }
    Some(())
}

/// How an argument is given.
#[derive(Clone, Copy, Debug)]
pub(super) enum ArgumentName<'a> {
    /// By its position.
    Position(usize),
    /// By its name.
    Name(&'a [u8]),
}

impl<'a> ValueReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn tag(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn size(&mut self) -> Option<u32> {
        let (size, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*size))
    }

    /// A length, and that many bytes.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let size = usize::try_from(self.size()?).ok()?;
        self.take(size)
    }

    /// How many values a tuple has, which begins here.
    fn tuple(&mut self) -> Option<u32> {
        (self.tag()? == b't').then(|| self.size()).flatten()
    }

    /// Goes past a value.
    fn skip(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.tag()? {
            b'N' | b'T' | b'F' => Some(()),
            b'i' | b'f' => self.take(8).map(drop),
            b'I' | b's' | b'b' => self.sized().map(drop),
            b'l' | b't' => {
                let count = self.size()?;
                (0..count).try_for_each(|_| self.skip(depth + 1))
            }
            b'd' => {
                let count = u64::from(self.size()?) * 2;
                (0..count).try_for_each(|_| self.skip(depth + 1))
            }
            b'a' | b'x' => self.array().map(drop),
            b'p' => self.skip(depth + 1),
            _ => None,
        }
    }

    /// Goes past a value and returns its size.
    fn extent(&mut self, form: ValueForm) -> Option<Extent> {
        let mut inside = *self;
        let extent = match inside.tag()? {
            b's' => Extent::of_length(characters(inside.sized()?)),
            b'b' => Extent::of_length(inside.sized()?.len() as u64),
            b'l' | b't' => inside.list(),
            b'd' if form == ValueForm::Frame => Extent::of_length(inside.column()?),
            b'd' => Extent::of_length(inside.size()?.into()),
            b'p' => Extent::of_array(std::iter::once(inside.frame()?)),
            b'a' | b'x' => {
                *self = inside;
                return self.array();
            }
            _ => Extent::default(),
        };
        self.skip(0)?;
        Some(extent)
    }

    /// The dimensions of a list behind its tag: lists in its first element are further ones.
    fn list(mut self) -> Extent {
        let mut extent = Extent::default();
        for dim in 0..DIMS_MAX {
            let Some(count) = self.size() else { break };
            extent.set(dim, count.into());
            if count == 0 || !matches!(self.tag(), Some(b'l' | b't')) {
                break;
            }
        }
        extent
    }

    /// The rows of a dictionary of columns behind its tag: those of the first column.
    fn column(mut self) -> Option<u64> {
        if self.size()? == 0 {
            return Some(0);
        }
        self.skip(0)?;
        self.rows()
    }

    /// The rows of a frame behind its tag: `(kind, [(name, column), ...], index, name)`.
    fn frame(mut self) -> Option<u64> {
        self.tuple()?;
        self.skip(0)?;
        let columns = matches!(self.tag()?, b'l' | b't').then(|| self.size()).flatten()?;
        if columns == 0 {
            return Some(0);
        }
        self.tuple()?;
        self.skip(0)?;
        self.rows()
    }

    /// The length of a column.
    fn rows(mut self) -> Option<u64> {
        match self.tag()? {
            b'l' | b't' => self.size().map(u64::from),
            b'a' | b'x' => self.array()?.dim(0),
            _ => Some(1),
        }
    }

    /// Goes past an array behind its tag.
    fn array(&mut self) -> Option<Extent> {
        let name_len = usize::from(self.take(1)?[0]);
        let name = self.take(name_len)?;
        let rank = self.take(1).map(|byte| byte[0]).filter(|rank| *rank <= RANK_MAX)?;
        let dims = self.take(usize::from(rank) * 8)?.chunks_exact(8);
        let dims = dims.map(|dim| dim.first_chunk().map_or(0, |dim| u64::from_le_bytes(*dim)));
        let bytes = dims.clone().try_fold(element_bytes(name)?, u64::checked_mul)?;
        self.take(usize::try_from(bytes).ok()?)?;
        Some(Extent::of_array(dims))
    }
}

/// The bytes of an element, by numpy's name of its type: `<f4`, `|b1`, `<U12`, `<M8[ns]`.
pub(super) fn element_bytes(name: &[u8]) -> Option<u64> {
    if name == b"bfloat16" {
        return Some(2);
    }
    let digits = name.get(2..)?;
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let size: u64 = std::str::from_utf8(&digits[..end]).ok()?.parse().ok()?;
    size.checked_mul(if name[1] == b'U' { 4 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(tag: u8, count: u32, inside: &[u8]) -> Vec<u8> {
        [&[tag], &count.to_le_bytes()[..], inside].concat()
    }

    fn text(text: &str) -> Vec<u8> {
        sized(b's', text.len() as u32, text.as_bytes())
    }

    fn array(name: &str, dims: &[u64], bytes: usize) -> Vec<u8> {
        let dims_raw: Vec<u8> = dims.iter().flat_map(|dim| dim.to_le_bytes()).collect();
        let head = [&[b'a', name.len() as u8], name.as_bytes(), &[dims.len() as u8]].concat();
        [head, dims_raw, vec![0; bytes]].concat()
    }

    fn int() -> Vec<u8> {
        [&b"i"[..], &[7; 8]].concat()
    }

    /// The sizes of the parameters `x` and `y`.
    fn told(call: &[u8]) -> [Option<Vec<u64>>; 2] {
        let mut told = [None, None];
        let form = |name: ArgumentName<'_>| match name {
            ArgumentName::Position(place) => Some(place).filter(|place| *place < 2),
            ArgumentName::Name(name) => [b"x", b"y"].iter().position(|known| *known == name),
        };
        arguments(
            call,
            |name| form(name).map(|param| (param, ValueForm::Array)),
            |param, extent| {
                told[param] = Some((0..).map_while(|dim| extent.dim(dim)).collect());
            },
        );
        told
    }

    #[test]
    fn arguments_are_measured_by_place_and_by_name() {
        let pair = array("<f4", &[3, 2], 24);
        let list = sized(b'l', 2, &[sized(b'l', 1, &int()), sized(b'l', 1, &int())].concat());
        let by_place = sized(b't', 2, &[&pair[..], &list].concat());
        assert_eq!(told(&by_place), [Some(vec![3, 2]), Some(vec![2, 1])]);
        let names = [text("other"), list, text("y"), text("gr\u{fc}n")].concat();
        let places = sized(b't', 1, &pair);
        let both = sized(b't', 2, &[places, sized(b'd', 2, &names)].concat());
        assert_eq!(told(&both), [Some(vec![3, 2]), Some(vec![4])]);
        for end in 0..both.len() {
            told(&both[..end]);
        }
    }

    #[test]
    fn every_kind_of_value_is_gone_past() {
        let values = [
            b"N".to_vec(),
            b"T".to_vec(),
            int(),
            sized(b'I', 3, b"abc"),
            sized(b'b', 2, b"ab"),
            sized(b'd', 1, &[text("k"), int()].concat()),
            array("bfloat16", &[2], 4),
            array("<U3", &[2], 24),
            array("<M8[ns]", &[1], 8),
            array("|b1", &[], 1),
        ];
        let many = sized(b'l', values.len() as u32, &values.concat());
        let call = sized(b't', 2, &[many, text("abc")].concat());
        assert_eq!(told(&call), [Some(vec![10]), Some(vec![3])]);
    }

    #[test]
    fn a_table_has_the_rows_of_its_first_column() {
        let column = sized(b't', 2, &[text("a"), array("<i8", &[5], 40)].concat());
        let parts = [text("frame"), sized(b'l', 1, &column), b"NN".to_vec()].concat();
        let frame = [&b"p"[..], &sized(b't', 4, &parts)].concat();
        let call = sized(b't', 2, &[&frame[..], &int()].concat());
        assert_eq!(told(&call), [Some(vec![5]), Some(vec![])]);
    }

    #[test]
    fn lies_about_sizes_and_depth_are_seen() {
        let deep = sized(b'l', 1, &[]).repeat(200_000);
        assert_eq!(told(&sized(b't', 1, &deep)), [None, None]);
        let endless = array("<f8", &[u64::MAX, u64::MAX], 8);
        assert_eq!(told(&sized(b't', 1, &endless)), [None, None]);
        assert_eq!(told(&sized(b't', u32::MAX, b"N")), [Some(vec![]), None]);
    }
}
