//! How many connections fit the process: every connection is a file descriptor, and so are log files,
//! workers' sockets and pipes, and downloads.

/// The connections that each plane may have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Clients of whatever offers inference.
    pub data: usize,
    /// Clients of management and metrics. No client of the data plane can take these.
    pub admin: usize,
}

impl ConnectionLimits {
    /// At most `max` for each plane, and in sum fewer than the descriptors: an eighth of those, but at least
    /// 64, is for workers, logs and downloads, and a sixteenth, but at least 16, for the admin plane. Where
    /// there are very few descriptors, these are a half and an eighth of them.
    pub fn new(max: usize, open_files: Option<u64>) -> Self {
        let Some(open_files) = open_files else { return Self { data: max, admin: max } };
        let open_files = usize::try_from(open_files).unwrap_or(usize::MAX);
        let others = (open_files / 8).max(64).min(open_files / 2);
        let admin = (open_files / 16).max(16).min(open_files / 8);
        let data = open_files.saturating_sub(others).saturating_sub(admin);
        Self { data: data.min(max), admin: admin.min(max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_stay_below_the_descriptors_and_below_the_setting() {
        for (open_files, data, admin) in [
            (Some(64), 24, 8),
            (Some(256), 176, 16),
            (Some(1024), 832, 64),
            (Some(65_536), 16_384, 4096),
            (Some(1 << 20), 16_384, 16_384),
            (Some(u64::MAX), 16_384, 16_384),
            (None, 16_384, 16_384),
        ] {
            let expected = ConnectionLimits { data, admin };
            assert_eq!(ConnectionLimits::new(16_384, open_files), expected, "{open_files:?}");
        }
        assert_eq!(ConnectionLimits::new(2, Some(1024)), ConnectionLimits { data: 2, admin: 2 });
    }
}
