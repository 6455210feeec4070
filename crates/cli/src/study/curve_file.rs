//! A service curve from the command line: a line, a CSV file, or the JSON that a server exports.

use std::path::Path;

use jitney_sim::curve::WrittenCurve;
use serde_json::Value;

use crate::failure::Failure;

const HINT: &str = "write --curve 5+0.2b, or name a file with lines of size,ms";

/// Reads `5+0.2b`, or the file of this name.
pub fn load(text: &str) -> Result<WrittenCurve, Failure> {
    let path = Path::new(text);
    if !path.exists() {
        let hint = if looks_like_file(text) {
            format!("there is no file {text}; {HINT}")
        } else {
            HINT.to_owned()
        };
        return text.parse().map_err(|error| Failure::usage(format!("{error}")).hint(hint));
    }
    parse(&read(path)?)
        .map_err(|error| Failure::usage(format!("{text} is not a curve: {error}")).hint(HINT))
}

fn looks_like_file(text: &str) -> bool {
    text.contains(['/', '\\']) || text.ends_with(".csv") || text.ends_with(".json")
}

/// Reads a text file.
pub fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    std::fs::read_to_string(path).map_err(failed)
}

/// The content of a file of either kind.
pub fn parse(text: &str) -> Result<WrittenCurve, String> {
    if !text.trim_start().starts_with(['{', '[']) {
        return WrittenCurve::csv(text).map_err(|error| error.to_string());
    }
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let points = value.get("curve").unwrap_or(&value).as_array();
    let points = points.ok_or("there is no list called curve in it")?;
    let point = |value: &Value| {
        let size = value.get("size").and_then(Value::as_u64)?;
        Some((size as usize, value.get("ms").and_then(Value::as_f64)?))
    };
    let points: Option<Vec<_>> = points.iter().map(point).collect();
    let points = points.ok_or("a point of its curve has no size or no ms")?;
    WrittenCurve::points(points).map_err(|error| error.to_string())
}
