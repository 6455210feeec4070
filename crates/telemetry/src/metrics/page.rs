//! Prometheus text in the form of TorchServe's library: a comma after the last label, Java's
//! numbers, and a histogram's count before its sum. For scrapers that ask for it, protobuf.

use std::fmt::{self, Display, Formatter, Write};

use jitney_engine::FineCounts;
use jitney_net::{push_number, push_thousandths};

use super::family::MetricKind;
use super::format::PageFormat;
use super::protobuf::FamilyWriter;

/// A page while it is written.
pub struct MetricsPage<'a> {
    body: PageBody,
    /// MetricNames to be shown; everything if there are none.
    names: Vec<&'a str>,
}

enum PageBody {
    Text(TextWriter),
    Protobuf(FamilyWriter),
}

/// A page of text while it is written.
struct TextWriter {
    text: String,
    /// The metric at hand.
    name: String,
}

/// The counts of a histogram.
#[derive(Clone, Copy)]
pub struct HistogramCounts<'a> {
    /// Of each bucket, and of the rest.
    pub buckets: &'a [u64],
    /// What was recorded altogether.
    pub sum: f64,
    /// The same in finer buckets, where they are counted so.
    pub fine: Option<&'a FineCounts>,
}

impl<'a> MetricsPage<'a> {
    /// An empty page for these metrics, or for all if none is named.
    pub fn new(names: Vec<&'a str>, format: PageFormat) -> Self {
        let text = || TextWriter { text: String::with_capacity(16 * 1024), name: String::new() };
        let body = match format {
            PageFormat::Text => PageBody::Text(text()),
            PageFormat::Protobuf => PageBody::Protobuf(FamilyWriter::default()),
        };
        Self { body, names }
    }

    /// Begins a metric; false if it is not to be shown.
    pub fn begin(&mut self, name: &str, kind: MetricKind, help: &str) -> bool {
        if !self.names.is_empty() && !self.names.contains(&name) {
            return false;
        }
        match &mut self.body {
            PageBody::Text(writer) => writer.begin(name, kind, help),
            PageBody::Protobuf(writer) => writer.begin(name, kind, help),
        }
        true
    }

    /// One number of the metric at hand.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        match &mut self.body {
            PageBody::Text(writer) => writer.push_sample("", labels, None, value),
            PageBody::Protobuf(writer) => writer.sample(labels, value),
        }
    }

    /// One histogram of the metric at hand.
    pub fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        bounds: impl Iterator<Item = f64>,
        counts: HistogramCounts<'_>,
    ) {
        let bounds = bounds.chain([f64::INFINITY]).zip(counts.buckets);
        let cumulative = bounds.scan(0, |total, (bound, count)| {
            *total += count;
            Some((bound, *total))
        });
        match &mut self.body {
            PageBody::Text(writer) => writer.histogram(labels, cumulative, counts.sum),
            PageBody::Protobuf(writer) => {
                writer.histogram(labels, cumulative, counts.sum, counts.fine);
            }
        }
    }

    /// The whole page.
    pub fn finish(self) -> Vec<u8> {
        match self.body {
            PageBody::Text(writer) => writer.text.into_bytes(),
            PageBody::Protobuf(writer) => writer.finish(),
        }
    }
}

impl TextWriter {
    fn begin(&mut self, name: &str, kind: MetricKind, help: &str) {
        name.clone_into(&mut self.name);
        let _ = writeln!(self.text, "# HELP {name} {help}");
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.as_str());
    }

    fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (f64, u64)>,
        sum: f64,
    ) {
        let mut all = 0;
        for (bound, total) in buckets {
            self.push_sample("_bucket", labels, Some(bound), total as f64);
            all = total;
        }
        self.push_sample("_count", labels, None, all as f64);
        self.push_sample("_sum", labels, None, sum);
    }

    fn push_sample(&mut self, suffix: &str, labels: &[(&str, &str)], le: Option<f64>, value: f64) {
        let Self { text, name } = self;
        let _ = write!(text, "{name}{suffix}");
        if !labels.is_empty() || le.is_some() {
            text.push('{');
            for (label, value) in labels {
                let _ = write!(text, "{label}=\"");
                escape(text, value);
                text.push_str("\",");
            }
            if let Some(bound) = le {
                let _ = write!(text, "le=\"{}\",", JavaDouble(bound));
            }
            text.push('}');
        }
        let _ = writeln!(text, " {}", JavaDouble(value));
    }
}

fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

/// A value in the form of Java's `Double.toString`: `1.0`, `0.001`, `1.0E-4`, `1.2345678E7`.
/// Infinities are spelled as Prometheus wants them.
pub struct JavaDouble(pub f64);

impl Display for JavaDouble {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = self.0;
        let size = value.abs();
        if value.is_nan() {
            f.write_str("NaN")
        } else if value.is_infinite() {
            f.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
        } else if size == 0.0 || (1e-3..1e7).contains(&size) {
            write!(f, "{value:?}")
        } else {
            let text = format!("{value:E}");
            let (digits, exponent) = text.split_once('E').unwrap_or((&text, "0"));
            let point = if digits.contains('.') { "" } else { ".0" };
            write!(f, "{digits}{point}E{exponent}")
        }
    }
}

impl JavaDouble {
    /// Appends its text. Whole thousandths, which nearly all measured values are, are written digit by
    /// digit: below 10 million their shortest text has no more than three decimals.
    pub fn push(self, line: &mut Vec<u8>) {
        let Self(value) = self;
        // Of values out of range it is some other number.
        let thousandths = (value * 1000.0 + 0.5) as u64;
        if value.is_sign_negative() || value >= 1e7 || thousandths as f64 / 1000.0 != value {
            return line.extend_from_slice(self.to_string().as_bytes());
        }
        push_number(line, thousandths / 1000);
        line.push(b'.');
        push_thousandths(line, (thousandths % 1000) as u32);
        for _ in 0..2 {
            line.pop_if(|digit| *digit == b'0');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dialect_is_the_librarys() {
        let mut page = MetricsPage::new(Vec::new(), PageFormat::Text);
        assert!(page.begin("Requests2XX", MetricKind::Counter, "help"));
        page.sample(&[("Level", "Host"), ("Hostname", "a\"b\\c\nd")], 1.0);
        assert!(page.begin("H", MetricKind::Histogram, "help"));
        let counts = HistogramCounts { buckets: &[1, 2, 3], sum: 12_345_678.0, fine: None };
        page.histogram(&[("a", "b")], [0.005, 1.0].into_iter(), counts);
        assert!(page.begin("Bare", MetricKind::Gauge, "help"));
        page.sample(&[], 0.5);
        let expected = "\
# HELP Requests2XX help
# TYPE Requests2XX counter
Requests2XX{Level=\"Host\",Hostname=\"a\\\"b\\\\c\\nd\",} 1.0
# HELP H help
# TYPE H histogram
H_bucket{a=\"b\",le=\"0.005\",} 1.0
H_bucket{a=\"b\",le=\"1.0\",} 3.0
H_bucket{a=\"b\",le=\"+Inf\",} 6.0
H_count{a=\"b\",} 6.0
H_sum{a=\"b\",} 1.2345678E7
# HELP Bare help
# TYPE Bare gauge
Bare 0.5
";
        assert_eq!(String::from_utf8(page.finish()).expect("text"), expected);
    }

    #[test]
    fn only_named_metrics_are_shown() {
        let mut page = MetricsPage::new(vec!["b"], PageFormat::Text);
        assert!(!page.begin("a", MetricKind::Gauge, ""));
        assert!(page.begin("b", MetricKind::Gauge, ""));
        assert!(page.finish().starts_with(b"# HELP b"));
    }

    #[test]
    fn numbers_are_written_as_java_does() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (0.001, "0.001"),
            (0.00099, "9.9E-4"),
            (1e-4, "1.0E-4"),
            (123.456, "123.456"),
            (9_999_999.0, "9999999.0"),
            (9_999_999.999, "9999999.999"),
            (1e7, "1.0E7"),
            (12_345_678.0, "1.2345678E7"),
            (-12_345_678.5, "-1.23456785E7"),
            (1e12, "1.0E12"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(JavaDouble(value).to_string(), expected);
            let mut line = Vec::new();
            JavaDouble(value).push(&mut line);
            assert_eq!(line, expected.as_bytes());
        }
    }
}
