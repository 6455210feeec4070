//! The shapes in the heads of array files: npy, npz and CSV. Nothing behind a head is read, except that
//! the lines of a CSV file are counted.

use super::extent::Extent;
use super::values::element_bytes;

/// How an npy file begins.
pub(super) const NPY: &[u8] = b"\x93NUMPY";
/// How a file in a zip archive, and so an npz file, begins.
pub(super) const NPZ: &[u8] = b"PK\x03\x04";
/// The longest head of an npy file that is read.
const HEAD_MAX: usize = 1 << 16;
/// Arrays of an npz file that are looked at.
const ENTRIES_MAX: usize = 256;

/// The shape of the array in an npy file of this length, of which `bytes` is the start; none for any other, and
/// none where the file is too short for its shape: the worker says what is wrong with it.
pub(super) fn npy(bytes: &[u8], length: usize) -> Option<Extent> {
    let (major, rest) = bytes.strip_prefix(NPY)?.split_first()?;
    let rest = rest.get(1..)?;
    let (head_len, rest) = if *major == 1 {
        let (length, rest) = rest.split_first_chunk()?;
        (usize::from(u16::from_le_bytes(*length)), rest)
    } else {
        let (length, rest) = rest.split_first_chunk()?;
        (usize::try_from(u32::from_le_bytes(*length)).ok()?, rest)
    };
    let head = std::str::from_utf8(rest.get(..head_len.min(HEAD_MAX))?).ok()?;
    let (_, shape) = head.split_once("'shape':")?;
    let (shape, _) = shape.split_once('(')?.1.split_once(')')?;
    let dims = shape.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let dims: Vec<u64> = dims.map(|dim| dim.parse().ok()).collect::<Option<_>>()?;
    let descr = head.split_once("'descr': '").and_then(|(_, rest)| rest.split_once('\''));
    let element = descr.and_then(|(descr, _)| element_bytes(descr.as_bytes())).unwrap_or(1);
    let needed = dims.iter().copied().try_fold(element, u64::checked_mul)?;
    let here = length.checked_sub(bytes.len() - rest.len() + head_len)?;
    (needed <= here as u64).then(|| Extent::of_array(dims.into_iter()))
}

/// Tells the names and shapes of the arrays in an npz file. Those that are compressed have none, and
/// so have those behind one whose length is not said in front of it.
pub(super) fn npz(mut bytes: &[u8], mut tell: impl FnMut(&[u8], Extent)) -> Option<()> {
    for _ in 0..ENTRIES_MAX {
        let (head, rest) = bytes.strip_prefix(NPZ)?.split_first_chunk::<26>()?;
        let short = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (flags, method) = (short(2), short(4));
        let stored = u32::from_le_bytes([head[14], head[15], head[16], head[17]]);
        let (name, rest) = rest.split_at_checked(short(22))?;
        let (extra, data) = rest.split_at_checked(short(24))?;
        let stored = if stored == u32::MAX { long_size(extra)? } else { u64::from(stored) };
        let shape = npy(data, data.len()).filter(|_| method == 0);
        if let (Some(name), Some(shape)) = (name.strip_suffix(b".npy"), shape) {
            tell(name, shape);
        }
        if flags & 8 != 0 {
            return None;
        }
        bytes = data.get(usize::try_from(stored).ok()?..)?;
    }
    None
}

/// The stored size of a large entry, from its extra fields.
fn long_size(mut extra: &[u8]) -> Option<u64> {
    while let Some((head, rest)) = extra.split_first_chunk::<4>() {
        let (kind, length) = (u16::from_le_bytes([head[0], head[1]]), [head[2], head[3]]);
        let (field, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(length)))?;
        if kind == 1 {
            return field.get(8..)?.first_chunk().map(|size| u64::from_le_bytes(*size));
        }
        extra = rest;
    }
    None
}

/// The rows of a CSV file with a line of names.
pub(super) fn csv(bytes: &[u8]) -> Extent {
    let (mut lines, mut quoted, mut filled) = (0_u64, false, false);
    for byte in bytes {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' if !quoted => lines += u64::from(std::mem::take(&mut filled)),
            b' ' | b'\t' | b'\r' => {}
            _ => filled = true,
        }
    }
    Extent::of_length((lines + u64::from(filled)).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(shape: &str, major: u8) -> Vec<u8> {
        let head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = head.len() as u32;
        let length = &length.to_le_bytes()[..if major == 1 { 2 } else { 4 }];
        [NPY, &[major, 0], length, head.as_bytes(), &[0; 24]].concat()
    }

    fn entry(name: &str, data: &[u8], method: u8, long: bool) -> Vec<u8> {
        let size = data.len() as u32;
        let extra = [&[1, 0, 16, 0][..], &[0; 8], &u64::from(size).to_le_bytes()].concat();
        let extra = if long { extra } else { Vec::new() };
        let size = if long { u32::MAX } else { size };
        let mut head = [0; 26];
        head[4] = method;
        head[14..18].copy_from_slice(&size.to_le_bytes());
        head[22..24].copy_from_slice(&(name.len() as u16).to_le_bytes());
        head[24..26].copy_from_slice(&(extra.len() as u16).to_le_bytes());
        [NPZ, &head, name.as_bytes(), &extra, data].concat()
    }

    fn shape(extent: Extent) -> Vec<u64> {
        (0..).map_while(|dim| extent.dim(dim)).collect()
    }

    #[test]
    fn an_npy_file_tells_its_shape() {
        let read = |bytes: &[u8]| npy(bytes, bytes.len());
        assert_eq!(read(&file("(3, 2)", 1)).map(shape), Some(vec![3, 2]));
        assert_eq!(read(&file("(5,)", 2)).map(shape), Some(vec![5]));
        assert_eq!(read(&file("()", 3)).map(shape), Some(vec![]));
        assert_eq!([read(&file("(-1,)", 1)), read(b"[1, 2]")], [None; 2]);
        let whole = file("(3, 2)", 1);
        assert!((0..whole.len()).all(|end| read(&whole[..end]).is_none()));
        let head = npy(&whole[..whole.len() - 24], whole.len());
        assert_eq!(head, read(&whole), "what follows the head is not looked at");
    }

    #[test]
    fn a_shape_that_the_file_cannot_hold_is_not_believed() {
        let read = |shape: &str| npy(&file(shape, 1), file(shape, 1).len());
        assert!(read("(6,)").is_some());
        for shape in ["(7,)", "(1000001,)", "(3, 3)", "(18446744073709551615, 2)"] {
            assert_eq!(read(shape), None, "{shape}");
        }
    }

    #[test]
    fn an_npz_file_tells_the_shapes_of_its_arrays() {
        let parts = [
            entry("a.npy", &file("(3, 2)", 1), 0, true),
            entry("packed.npy", &file("(9,)", 1), 8, false),
            entry("b.npy", &file("(4,)", 1), 0, false),
            b"PK\x01\x02 what follows".to_vec(),
        ];
        let whole = parts.concat();
        let told = |bytes: &[u8]| {
            let mut told = Vec::new();
            npz(bytes, |name, extent| told.push((name.to_vec(), shape(extent))));
            told
        };
        assert_eq!(told(&whole), [(b"a".to_vec(), vec![3, 2]), (b"b".to_vec(), vec![4])]);
        for end in 0..whole.len() {
            assert!(told(&whole[..end]).len() <= 2);
        }
    }

    #[test]
    fn the_lines_of_a_csv_file_are_its_rows() {
        let rows = |text: &str| csv(text.as_bytes()).dim(0);
        assert_eq!(rows("a,b\n1,2\n3,4\n"), Some(2));
        assert_eq!(rows("a,b\r\n\r\n\"x\ny\",2"), Some(1));
        assert_eq!([rows("a"), rows("")], [Some(0), Some(0)]);
    }
}
