//! `version_policy` of a Triton configuration: which of the versions in a model's folder are served.

use super::fields::unknown;
use super::text_format::{ConfigError, PbField};

/// Which versions are served.
#[derive(Debug, PartialEq)]
pub(super) enum VersionPolicy {
    Latest(usize),
    All,
    Specific(Vec<u64>),
}

impl Default for VersionPolicy {
    fn default() -> Self {
        Self::Latest(1)
    }
}

/// Reads the field.
pub(super) fn read(field: &PbField) -> Result<VersionPolicy, ConfigError> {
    let Some(policy) = field.message()?.first() else { return Ok(VersionPolicy::default()) };
    let inner = policy.message()?;
    match policy.name.as_str() {
        "all" => Ok(VersionPolicy::All),
        "latest" => {
            let count = inner.iter().find(|field| field.name == "num_versions");
            Ok(VersionPolicy::Latest(count.map_or(Ok(1), PbField::number::<usize>)?.max(1)))
        }
        "specific" => {
            let versions = inner.iter().filter(|field| field.name == "versions");
            Ok(VersionPolicy::Specific(
                versions.map(PbField::number::<u64>).collect::<Result<_, _>>()?,
            ))
        }
        _ => Err(unknown(policy, ["latest", "all", "specific"])),
    }
}
