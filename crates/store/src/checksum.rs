//! The SHA-256 that a caller expects an archive to have, and the one that a file has.
//!
//! It is compared before the archive is unpacked, wherever the file came from. What has no single
//! file, a directory, has no sum.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    path::Path,
    str::FromStr,
};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN, digest};

/// A sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sha256([u8; SHA256_OUTPUT_LEN]);

impl Sha256 {
    /// The sum of these bytes.
    pub fn of(content: &[u8]) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, content).as_ref());
        Self(bytes)
    }

    /// The sum of a file's content. Blocks.
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        let (mut file, mut sum) = (File::open(path)?, Context::new(&SHA256));
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => sum.update(&buffer[..read]),
            }
        }
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(sum.finish().as_ref());
        Ok(Self(bytes))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl FromStr for Sha256 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a sha256: that has 64 hexadecimal digits");
        let (pairs, rest) = text.trim().as_bytes().as_chunks();
        let bytes: Option<Vec<u8>> = pairs.iter().map(hex_pair).collect();
        let bytes = bytes.filter(|_| rest.is_empty()).ok_or_else(wrong)?;
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}

/// The byte that two hexadecimal digits write.
fn hex_pair(pair: &[u8; 2]) -> Option<u8> {
    let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? * 16 + low?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_file_has_the_sum_that_everybody_computes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("empty");
        std::fs::write(&file, "").unwrap();
        let sum = Sha256::of_file(&file).unwrap();
        assert_eq!(sum.to_string(), EMPTY);
        assert_eq!(EMPTY.to_uppercase().parse(), Ok(sum));
        std::fs::write(&file, "x").unwrap();
        assert_ne!(Sha256::of_file(&file).unwrap(), sum);
    }

    #[test]
    fn what_is_no_sum_is_rejected() {
        for text in ["", "12", &EMPTY[1..], &format!("{EMPTY}0"), &EMPTY.replace('e', "g"), "ü"] {
            let why = text.parse::<Sha256>().unwrap_err();
            assert!(why.contains("64 hexadecimal digits"), "{why}");
        }
    }
}
