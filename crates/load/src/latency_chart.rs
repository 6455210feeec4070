//! Latency over time as SVG, written by hand: median, 99th percentile and maximum of every slot on a
//! logarithmic axis, and below it how many requests were not served.

use std::fmt::Write as _;

use crate::report::LoadReport;
use crate::timeline::TimeSlotReport;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 880.0;
const TOP: f64 = 64.0;
/// Where the upper part ends, and where the lower one begins and ends.
const MIDDLE: f64 = 320.0;
const LOWER: f64 = 356.0;
const BOTTOM: f64 = 416.0;

/// The least latency of the grid: a microsecond.
const GRID_FIRST: f64 = 1e-3;

/// Name, colour and width of a line, and its value; colours of Okabe and Ito.
type CurveStyle = (&'static str, &'static str, f64, fn(&TimeSlotReport) -> f64);
const CURVES: [CurveStyle; 3] = [
    ("max", "#999999", 1.2, |slot| slot.max_ms),
    ("p99", "#D55E00", 2.4, |slot| slot.p99_ms),
    ("p50", "#0072B2", 2.4, |slot| slot.p50_ms),
];

impl LoadReport {
    /// The picture.
    #[must_use]
    pub fn svg(&self, title: &str) -> String {
        LatencyChart::new(self).svg(title)
    }
}

struct LatencyChart<'a> {
    report: &'a LoadReport,
    /// The end of the horizontal axis, in seconds.
    seconds: f64,
    /// The ends of the vertical axis, in milliseconds.
    low: f64,
    high: f64,
    /// The longest bar below: requests per second.
    unserved: f64,
    width: f64,
}

impl<'a> LatencyChart<'a> {
    fn new(report: &'a LoadReport) -> Self {
        let slots = &report.timeline;
        let width = match slots.as_slice() {
            [first, second, ..] => second.at_s - first.at_s,
            _ => report.total.seconds.max(1e-3),
        };
        let answered = || slots.iter().filter(|slot| slot.answered > 0);
        let low = answered().map(|slot| slot.p50_ms).fold(f64::INFINITY, f64::min);
        let high = answered().map(|slot| slot.max_ms).fold(0.0, f64::max);
        let (low, high) = if high > 0.0 { (low, high) } else { (1.0, 1.0) };
        let high = report.objective_ms.unwrap_or(high).max(high);
        let low = grid().take_while(|ms| *ms <= low).last().unwrap_or(GRID_FIRST);
        let unserved = slots.iter().map(|slot| (slot.rejected + slot.failed) as f64 / width);
        Self {
            report,
            seconds: slots.len().max(1) as f64 * width,
            low,
            high: grid().find(|ms| *ms >= high && *ms > low).unwrap_or(high),
            unserved: unserved.fold(0.0, f64::max),
            width,
        }
    }

    fn x(&self, seconds: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (seconds / self.seconds).clamp(0.0, 1.0)
    }

    fn y(&self, ms: f64) -> f64 {
        let share = (ms.max(1e-6) / self.low).ln() / (self.high / self.low).ln();
        MIDDLE - (MIDDLE - TOP) * share.clamp(0.0, 1.0)
    }

    fn svg(&self, title: &str) -> String {
        let mut svg = String::new();
        let title = escape(title);
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#222\">\n\
             <title>{title}</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"600\">{title}</text>"
        );
        self.legend(&mut svg);
        self.axes(&mut svg);
        self.curves(&mut svg);
        self.bars(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let mut x = LEFT;
        let mut entry = |name: &str, colour: &str| {
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.0} 44h22\" stroke=\"{colour}\" stroke-width=\"3\"/>\
                 <text x=\"{:.0}\" y=\"48\">{name}</text>",
                x + 28.0
            );
            x += 48.0 + 7.2 * name.chars().count() as f64;
        };
        for (name, colour, ..) in CURVES.iter().rev() {
            entry(name, colour);
        }
        if let Some(objective) = self.report.objective_ms {
            entry(&format!("objective {} ms", number(objective)), "#009E73");
        }
        entry("rejected", "#E69F00");
        entry("failed", "#CC3311");
    }

    fn axes(&self, svg: &mut String) {
        for ms in grid().filter(|ms| (self.low..=self.high).contains(ms)) {
            let y = self.y(ms);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                number(ms)
            );
        }
        for at in ticks(self.seconds) {
            let x = self.x(at);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {BOTTOM}v5\" stroke=\"#888\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 19.0,
                number(at)
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{MIDDLE}H{RIGHT}M{LEFT} {LOWER}V{BOTTOM}H{RIGHT}\" stroke=\"#888\" fill=\"none\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">seconds</text>\n\
             <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">latency, ms</text>\n\
             <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">not served/s</text>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.0}</text>",
            (LEFT + RIGHT) / 2.0,
            HEIGHT - 8.0,
            (TOP + MIDDLE) / 2.0,
            (LOWER + BOTTOM) / 2.0,
            LEFT - 8.0,
            LOWER + 8.0,
            self.unserved
        );
    }

    fn curves(&self, svg: &mut String) {
        if let Some(objective) = self.report.objective_ms {
            let y = self.y(objective);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#009E73\" stroke-width=\"1.5\" stroke-dasharray=\"7 4\"/>"
            );
        }
        for (_, colour, width, value) in CURVES {
            let _ = writeln!(
                svg,
                "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\" stroke-linecap=\"round\"/>",
                self.path(value)
            );
        }
    }

    /// A line through the middles of the slots, with a gap where nothing was answered.
    fn path(&self, value: fn(&TimeSlotReport) -> f64) -> String {
        let (mut path, mut pen) = (String::new(), 'M');
        for slot in &self.report.timeline {
            if slot.answered == 0 {
                pen = 'M';
                continue;
            }
            let x = self.x(slot.at_s + self.width / 2.0);
            let _ = write!(path, "{pen}{x:.1} {:.1}", self.y(value(slot)));
            if pen == 'M' {
                // A slot between gaps is a dot.
                path.push_str("h0.1");
            }
            pen = 'L';
        }
        path
    }

    fn bars(&self, svg: &mut String) {
        if self.unserved == 0.0 {
            return;
        }
        for slot in &self.report.timeline {
            let mut floor = BOTTOM;
            for (count, colour) in [(slot.rejected, "#E69F00"), (slot.failed, "#CC3311")] {
                let height = (BOTTOM - LOWER) * count as f64 / self.width / self.unserved;
                if height > 0.0 {
                    floor -= height;
                    let _ = writeln!(
                        svg,
                        "<rect x=\"{:.1}\" y=\"{floor:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>",
                        self.x(slot.at_s),
                        (self.x(self.width) - LEFT).max(0.5)
                    );
                }
            }
        }
    }
}

/// Where latencies have a line in the grid: 1, 2 and 5 of every power of ten, in milliseconds.
fn grid() -> impl Iterator<Item = f64> {
    let powers = (0..10).map(|power| GRID_FIRST * 10f64.powi(power));
    powers.flat_map(|power| [power, 2.0 * power, 5.0 * power])
}

/// A handful of round numbers from 0 to `end`.
fn ticks(end: f64) -> Vec<f64> {
    let raw = end / 8.0;
    let power = 10f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = steps.into_iter().find(|step| *step >= raw).unwrap_or(raw);
    (0..=16).map(|at| f64::from(at) * step).take_while(|tick| *tick <= end * 1.001).collect()
}

fn number(value: f64) -> String {
    format!("{}", (value * 1000.0).round() / 1000.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_is_round_and_ticks_are_few() {
        let shown: Vec<String> = grid().map(number).take(7).collect();
        assert_eq!(shown, ["0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1"]);
        for end in [0.3, 1.0, 5.0, 42.0, 3600.0] {
            assert!((4..=10).contains(&ticks(end).len()), "{end}: {:?}", ticks(end));
        }
    }
}
