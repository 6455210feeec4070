//! Processors by number, as the kernel lists them: `0-3,8`.

use std::fmt;

/// The masks that the kernel is given know so many.
const CPUS_MAX: u32 = 1024;

/// Processors by number, ascending, none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// Reads a list as the kernel writes it, such as `0-3,8`; none where it is no such list.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last && last < CPUS_MAX).then_some(first..=last)
        };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let ranges: Option<Vec<_>> = parts.map(range).collect();
        Some(ranges?.into_iter().flatten().collect())
    }

    /// The numbers.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.0
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> Self {
        let mut numbers: Vec<u32> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self(numbers)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.0.chunk_by(|one, next| one + 1 == *next);
        let words = ranges.filter_map(|range| match range {
            [] => None,
            [one] => Some(one.to_string()),
            [first, .., last] => Some(format!("{first}-{last}")),
        });
        out.write_str(&words.collect::<Vec<_>>().join(","))
    }
}
