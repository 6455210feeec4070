//! What stands in a JPEG file beside its scans: the frame, tables, and what software says of the colors.

use super::error::{CUT_OFF, JpegError};
use super::huffman::Huffman;

/// The place in a block of each coefficient, in the order in which files have them.
pub(super) const NATURAL: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// The size of the image and of its components.
#[derive(Clone, Debug)]
pub(super) struct JpegFrame {
    pub width: usize,
    pub height: usize,
    pub progressive: bool,
    pub components: Vec<Component>,
    /// The most samples of a component in a unit, across and down.
    pub most: (usize, usize),
}

/// One component of a frame.
#[derive(Clone, Debug)]
pub(super) struct Component {
    pub id: u8,
    /// Blocks in a unit, across and down.
    pub blocks: (usize, usize),
    pub quantization: usize,
}

impl JpegFrame {
    /// Units across and down.
    pub(super) fn units(&self) -> (usize, usize) {
        let (across, down) = self.most;
        (self.width.div_ceil(8 * across), self.height.div_ceil(8 * down))
    }

    /// The samples of a component across and down.
    pub(super) fn samples(&self, component: &Component) -> (usize, usize) {
        let (across, down) = component.blocks;
        ((self.width * across).div_ceil(self.most.0), (self.height * down).div_ceil(self.most.1))
    }
}

/// A component in a scan, by its place in the frame, with its tables of codes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanComponent {
    pub index: usize,
    pub first_codes: usize,
    pub other_codes: usize,
}

/// What a scan brings.
#[derive(Clone, Debug)]
pub(super) struct ScanHeader {
    pub components: Vec<ScanComponent>,
    /// The first and last coefficient.
    pub from: usize,
    pub to: usize,
    /// Bits below what was brought before, and below what is brought now.
    pub high: u32,
    pub low: u32,
}

/// Everything that has been read so far.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub frame: Option<JpegFrame>,
    /// In the order of the file.
    pub quantization: [Option<Box<[i32; 64]>>; 4],
    pub first_codes: [Option<Huffman>; 4],
    pub other_codes: [Option<Huffman>; 4],
    pub restart_interval: usize,
    pub is_jfif: bool,
    pub adobe: Option<u8>,
    pub orientation: u16,
}

/// What comes next in the file.
#[derive(Debug)]
pub(super) enum Next {
    /// The data of a scan begins here.
    Scan(ScanHeader, usize),
    End,
}

impl Tables {
    /// Reads up to the data of the next scan or the end.
    pub(super) fn read(&mut self, data: &[u8], mut at: usize) -> Result<Next, JpegError> {
        loop {
            let rest = data.get(at..).ok_or(CUT_OFF)?;
            // Whatever stands before a marker is passed over.
            at += rest.iter().position(|byte| *byte == 0xff).ok_or(CUT_OFF)? + 1;
            let marker = *data.get(at).ok_or(CUT_OFF)?;
            if marker == 0xff {
                continue;
            }
            at += 1;
            match marker {
                0xd9 => return Ok(Next::End),
                0 | 1 | 0xd0..=0xd8 => continue,
                _ => {}
            }
            let length = data.get(at..at + 2).ok_or(CUT_OFF)?;
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            let segment = data.get(at + 2..at + length).ok_or(CUT_OFF)?;
            at += length;
            match marker {
                0xc0..=0xc2 => self.frame(segment, marker == 0xc2)?,
                0xc4 => self.codes(segment)?,
                0xc3 | 0xc5..=0xcf => return Err(JpegError::Unsupported("its way of coding")),
                0xdb => self.quantization(segment)?,
                0xdd => self.restart_interval = usize::from(number(segment, 0)?),
                0xda => return Ok(Next::Scan(self.scan(segment)?, at)),
                0xe0 if segment.starts_with(b"JFIF\0") => self.is_jfif = true,
                0xe1 if segment.starts_with(b"Exif\0\0") => {
                    self.orientation = orientation(&segment[6..]).unwrap_or(1);
                }
                0xee if segment.starts_with(b"Adobe") => self.adobe = segment.get(11).copied(),
                _ => {}
            }
        }
    }

    fn frame(&mut self, segment: &[u8], progressive: bool) -> Result<(), JpegError> {
        if self.frame.is_some() {
            return Err(JpegError::Broken("it has two frames"));
        }
        let [8, ..] = segment else { return Err(JpegError::Unsupported("its precision")) };
        let (height, width) = (number(segment, 1)?.into(), number(segment, 3)?.into());
        if width == 0 || height == 0 {
            return Err(JpegError::Broken("it does not say its size"));
        }
        let count = usize::from(*segment.get(5).ok_or(CUT_OFF)?);
        let listed = segment.get(6..6 + 3 * count).ok_or(CUT_OFF)?;
        let (listed, _) = listed.as_chunks::<3>();
        let component = |[id, sampling, table]: &[u8; 3]| {
            let blocks = (usize::from(sampling >> 4), usize::from(sampling & 15));
            let known = (1..=4).contains(&blocks.0) && (1..=4).contains(&blocks.1) && *table < 4;
            known.then_some(Component { id: *id, blocks, quantization: usize::from(*table) })
        };
        let components: Option<Vec<_>> = listed.iter().map(component).collect();
        let mut components = components.ok_or(JpegError::Broken("its frame is wrong"))?;
        if !matches!(count, 1 | 3 | 4) {
            return Err(JpegError::Unsupported("its number of components"));
        }
        if let [only] = components.as_mut_slice() {
            // A unit of a single component is a block, whatever the frame says.
            only.blocks = (1, 1);
        }
        let most = |of: fn(&Component) -> usize| components.iter().map(of).max().unwrap_or(1);
        let most = (most(|it| it.blocks.0), most(|it| it.blocks.1));
        if components.iter().any(|it| most.0 % it.blocks.0 != 0 || most.1 % it.blocks.1 != 0) {
            return Err(JpegError::Unsupported("its sampling"));
        }
        self.frame = Some(JpegFrame { width, height, progressive, components, most });
        Ok(())
    }

    fn quantization(&mut self, mut segment: &[u8]) -> Result<(), JpegError> {
        while let Some((kind, rest)) = segment.split_first() {
            let wide = kind >> 4 != 0;
            let (values, rest) =
                rest.split_at_checked(if wide { 128 } else { 64 }).ok_or(CUT_OFF)?;
            let table = self.quantization.get_mut(usize::from(kind & 15));
            let table = table.ok_or(JpegError::Broken("a table has no place"))?;
            let value = |place: usize| match wide {
                true => i32::from(values[2 * place]) << 8 | i32::from(values[2 * place + 1]),
                false => i32::from(values[place]),
            };
            *table = Some(Box::new(std::array::from_fn(value)));
            segment = rest;
        }
        Ok(())
    }

    fn codes(&mut self, mut segment: &[u8]) -> Result<(), JpegError> {
        while let Some((kind, rest)) = segment.split_first() {
            let (counts, rest) = rest.split_first_chunk::<16>().ok_or(CUT_OFF)?;
            let total = counts.iter().map(|count| usize::from(*count)).sum();
            let (symbols, rest) = rest.split_at_checked(total).ok_or(CUT_OFF)?;
            let tables = if kind >> 4 == 0 { &mut self.first_codes } else { &mut self.other_codes };
            let table = tables.get_mut(usize::from(kind & 15));
            let table = table.ok_or(JpegError::Broken("a table has no place"))?;
            let codes = Huffman::new(counts, symbols);
            *table = Some(codes.ok_or(JpegError::Broken("its codes contradict each other"))?);
            segment = rest;
        }
        Ok(())
    }

    fn scan(&self, segment: &[u8]) -> Result<ScanHeader, JpegError> {
        const WRONG: JpegError = JpegError::Broken("a scan is wrong");
        let frame = self.frame.as_ref().ok_or(JpegError::Broken("it has no frame"))?;
        let (count, rest) = segment.split_first().ok_or(CUT_OFF)?;
        let (listed, rest) = rest.split_at_checked(2 * usize::from(*count)).ok_or(CUT_OFF)?;
        let [from, to, bits] = rest.first_chunk::<3>().ok_or(CUT_OFF)?;
        let mut components = Vec::with_capacity(4);
        for [id, tables] in listed.as_chunks::<2>().0 {
            let place = frame.components.iter().position(|it| it.id == *id).ok_or(WRONG)?;
            let (first_codes, other_codes) = (usize::from(tables >> 4), usize::from(tables & 15));
            if components.iter().any(|it: &ScanComponent| it.index == place) {
                return Err(WRONG);
            }
            components.push(ScanComponent { index: place, first_codes, other_codes });
        }
        let (from, to) = (usize::from(*from), usize::from(*to));
        let (high, low) = (u32::from(bits >> 4), u32::from(bits & 15));
        let fits = match frame.progressive {
            false => true,
            true => {
                low <= 13
                    && (high == 0 || high == low + 1)
                    && if from == 0 { to == 0 } else { from <= to && to < 64 && *count == 1 }
            }
        };
        if components.is_empty() || !fits {
            return Err(WRONG);
        }
        Ok(ScanHeader { components, from, to, high, low })
    }
}

fn number(segment: &[u8], at: usize) -> Result<u16, JpegError> {
    let bytes = segment.get(at..at + 2).ok_or(CUT_OFF)?;
    Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// How a camera was held, as the TIFF of an EXIF block says it.
#[must_use]
pub fn orientation(tiff: &[u8]) -> Option<u16> {
    let little = match tiff.get(..4)? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at: usize| -> Option<u16> {
        let bytes = [*tiff.get(at)?, *tiff.get(at + 1)?];
        Some(if little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let word = |at: usize| -> Option<usize> {
        let (one, two) = (usize::from(short(at)?), usize::from(short(at + 2)?));
        Some(if little { one | two << 16 } else { one << 16 | two })
    };
    let directory = word(4)?;
    let entries = usize::from(short(directory)?);
    let entry = (0..entries).map(|place| directory + 2 + 12 * place);
    let found = entry.into_iter().find(|at| short(*at) == Some(0x0112))?;
    short(found + 8).filter(|value| (1..=8).contains(value))
}
