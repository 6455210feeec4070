//! A line chart as SVG, written by hand: a handful of lines, two axes and a legend do not need a
//! library.
//!
//! Colours are told apart by those who see few of them, and every line also has a dash of its own.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 236.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;

/// Okabe and Ito's colours, ours first.
const COLOURS: [&str; 8] =
    ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555", "#8C6D1F"];
const DASHES: [&str; 4] = ["", "7 4", "2 3", "9 3 2 3"];

/// One line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Where it goes, ascending in x.
    pub points: Vec<(f64, f64)>,
    /// Whether it is the one to look at.
    pub strong: bool,
}

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The horizontal axis, with its unit.
    pub x: String,
    /// The vertical axis, with its unit.
    pub y: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Where the vertical axis ends, if the highest point is not to decide.
    pub top: Option<f64>,
}

impl Chart {
    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let frame = Frame::new(self);
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#222\">\n\
             <title>{0}</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"600\">{0}</text>\n",
            escape(&self.title)
        );
        self.axes(&frame, &mut svg);
        for (at, series) in self.series.iter().enumerate() {
            line(series, at, &frame, &mut svg);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, frame: &Frame, svg: &mut String) {
        for tick in ticks(frame.y1) {
            let y = frame.y(tick);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                number(tick)
            );
        }
        let floor = HEIGHT - BOTTOM;
        for tick in ticks(frame.x1) {
            let x = frame.x(tick);
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {floor:.1}v5\" stroke=\"#888\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                floor + 20.0,
                number(tick)
            );
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{floor:.1}H{:.1}\" stroke=\"#888\" fill=\"none\"/>\n\
             <text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 10.0,
            escape(&self.x),
            (TOP + floor) / 2.0,
            escape(&self.y)
        );
    }
}

/// From values to places.
struct Frame {
    x1: f64,
    y1: f64,
}

impl Frame {
    fn new(chart: &Chart) -> Self {
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let x1 = points().map(|point| point.0).fold(0.0, f64::max);
        let y1 = points().map(|point| point.1).filter(|y| y.is_finite()).fold(0.0, f64::max);
        let top = chart.top.unwrap_or(y1 * 1.05);
        Self { x1: if x1 > 0.0 { x1 } else { 1.0 }, y1: if top > 0.0 { top } else { 1.0 } }
    }

    fn x(&self, x: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * x / self.x1
    }

    fn y(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y / self.y1).clamp(0.0, 1.0)
    }
}

fn line(series: &Series, at: usize, frame: &Frame, svg: &mut String) {
    let (colour, dash) = (COLOURS[at % COLOURS.len()], DASHES[at % DASHES.len()]);
    let width = if series.strong { 3.5 } else { 1.8 };
    let mut path = String::new();
    for (index, &(x, y)) in series.points.iter().enumerate() {
        let step = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{step}{:.1} {:.1}", frame.x(x), frame.y(y));
    }
    let style = format!("stroke=\"{colour}\" stroke-width=\"{width}\" stroke-dasharray=\"{dash}\"");
    let (x, y) = (WIDTH - RIGHT + 14.0, TOP + 12.0 + 22.0 * at as f64);
    let weight = if series.strong { " font-weight=\"600\"" } else { "" };
    let _ = writeln!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke-linejoin=\"round\" {style}/>\n\
         <path d=\"M{x:.1} {y:.1}h26\" {style}/>\
         <text x=\"{:.1}\" y=\"{:.1}\"{weight}>{}</text>",
        x + 33.0,
        y + 4.0,
        escape(&series.name)
    );
}

/// Four to eight round numbers from 0 to `end`.
fn ticks(end: f64) -> Vec<f64> {
    let raw = end / 6.0;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|&step| step >= raw).unwrap_or(raw);
    (0..=8).map(|at| f64::from(at) * step).take_while(|&tick| tick <= end * 1.001).collect()
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
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        for end in [0.003, 0.9, 7.0, 42.0, 12345.0] {
            assert!((4..=9).contains(&ticks(end).len()), "{end}: {:?}", ticks(end));
        }
    }

    #[test]
    fn a_chart_names_its_lines_and_escapes_them() {
        let series =
            Series { name: "a < b".to_owned(), points: vec![(0.0, 0.0), (2.0, 5.0)], strong: true };
        let chart = Chart {
            title: "T".into(),
            x: "x".into(),
            y: "y".into(),
            series: vec![series],
            top: None,
        };
        let svg = chart.svg();
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN"));
    }
}
