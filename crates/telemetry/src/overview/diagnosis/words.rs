//! Numbers as people read them: at most three digits that matter, with their unit.

/// `12 %`, `0.5 %`, of a share between 0 and 1.
pub(super) fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value {
        _ if value > 0.0 && value < 0.1 => "<0.1 %".to_owned(),
        _ if value > 99.0 && value < 100.0 => {
            format!("{} %", trim((value * 10.0).floor() / 10.0, 1))
        }
        _ => format!("{} %", digits(value)),
    }
}

/// A rate or a number of times.
pub(super) fn rate(value: f64) -> String {
    if value > 0.0 && value < 0.1 { "<0.1".to_owned() } else { digits(value) }
}

/// `400 ms`, `1.2 s`.
pub(super) fn millis(value: f64) -> String {
    match value {
        _ if value >= 999.5 => duration(value / 1e3),
        _ if value < 0.995 => format!("{} ms", trim(value, 2)),
        _ => format!("{} ms", digits(value)),
    }
}

/// Seconds as the two largest units that matter.
pub(super) fn duration(seconds: f64) -> String {
    if seconds < 99.5 {
        return format!("{} s", digits(seconds));
    }
    let minutes = (seconds / 60.0).round() as u64;
    let two = |large: u64, unit: &str, small: u64, other: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {other}"),
    };
    match minutes {
        0..60 => format!("{minutes} min"),
        60..1440 => two(minutes / 60, "h", minutes % 60, "min"),
        _ => two(minutes / 1440, "d", minutes / 60 % 24, "h"),
    }
}

/// `12 MB`.
pub(super) fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut size, mut unit) = (value, 0);
    while size >= 999.5 && unit + 1 < units.len() {
        (size, unit) = (size / 1e3, unit + 1);
    }
    format!("{} {}", digits(size), units[unit])
}

/// `once`, `twice`, `3 times`.
pub(super) fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

/// The line of an error that says what is wrong: the one that names the exception of a traceback, else the
/// first.
pub(super) fn error_line(text: &str) -> String {
    let names = |line: &&str| {
        let name = line.split([':', ' ', '(']).next().unwrap_or_default();
        ["Error", "Exception", "Interrupt", "Exit"].iter().any(|ending| name.ends_with(ending))
    };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let raised = lines.iter().rfind(|line| names(line)).or(lines.last());
    let traceback = lines.iter().any(|line| line.starts_with("Traceback"));
    let line = if traceback { raised } else { lines.first() };
    let line = line.copied().unwrap_or_default();
    if line.chars().count() <= 240 {
        return line.to_owned();
    }
    line.chars().take(239).chain(['…']).collect()
}

fn digits(value: f64) -> String {
    trim(value, usize::from(value < 9.95))
}

fn trim(value: f64, places: usize) -> String {
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_at_most() {
        assert_eq!(
            [0.0, 0.0004, 0.005, 0.342, 0.9975].map(percent),
            ["0 %", "<0.1 %", "0.5 %", "34 %", "99.7 %"]
        );
        assert_eq!([0.04, 2.4, 40.0].map(rate), ["<0.1", "2.4", "40"]);
        assert_eq!(
            [0.42, 10.0, 400.4, 1200.0].map(millis),
            ["0.42 ms", "10 ms", "400 ms", "1.2 s"]
        );
        assert_eq!(
            [44.0, 150.0, 5400.0, 90_000.0].map(duration),
            ["44 s", "3 min", "1 h 30 min", "1 d 1 h"]
        );
        assert_eq!([12e6, 324e6, 5.0].map(bytes), ["12 MB", "324 MB", "5 B"]);
        assert_eq!([1, 2, 7].map(times), ["once", "twice", "7 times"]);
    }

    #[test]
    fn the_line_of_an_error_says_what_is_wrong() {
        let traceback = "Traceback (most recent call last):\n  File\nKeyError: 'a'\nworker ended";
        assert_eq!(error_line(traceback), "KeyError: 'a'");
        assert_eq!(error_line("Loading failed: x\nmore"), "Loading failed: x");
        assert_eq!(error_line(""), "");
    }
}
