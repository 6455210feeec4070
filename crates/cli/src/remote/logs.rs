//! The log of a running server: its last lines, and new ones as they come.

use std::io::IsTerminal as _;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::client::RemoteClient;
use super::words::plain;
use crate::console;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::remote::LogsFlags;

/// A line, as the server sends it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RemoteLogLine {
    time: String,
    level: String,
    message: String,
    fields: Map<String, Value>,
}

/// Prints the last lines, and follows the log if that is wanted.
pub async fn print(client: &RemoteClient, flags: &LogsFlags, env: &Env) -> Result<(), Failure> {
    let color = std::io::stdout().is_terminal() && !env.no_color();
    let show = |line: &Value| {
        console::out(if flags.server.json { line.to_string() } else { text(line, color) });
    };
    let filters = filters(flags);
    let filters: Vec<_> = filters.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if !flags.follow {
        let document = client.document(&["logs"], &filters).await?;
        let lines = document["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
        lines.iter().for_each(show);
        if let Some(dropped) = document["dropped"].as_u64().filter(|dropped| *dropped > 0) {
            console::err(format!("{dropped} lines were not kept, because they were too long"));
        }
        return Ok(());
    }
    let mut events = client.events(&["logs", "stream"], &filters).await?;
    while let Some(event) = events.next().await? {
        let document: Value = serde_json::from_str(&event.data).unwrap_or_default();
        match event.name.as_str() {
            "log" => show(&document),
            "dropped" => {
                let dropped = document["dropped"].as_u64().unwrap_or_default();
                console::err(format!("{dropped} lines are missing here: they came too fast"));
            }
            _ => {}
        }
    }
    console::err("the server ended the stream");
    Ok(())
}

fn filters(flags: &LogsFlags) -> Vec<(&'static str, String)> {
    let mut filters = vec![("lines", flags.last.to_string())];
    filters.extend(flags.level.map(|level| ("level", level.as_str().to_owned())));
    filters.extend(flags.model.clone().map(|model| ("model", model)));
    filters.extend(flags.contains.clone().map(|text| ("contains", text)));
    filters
}

/// `12:30:01.123  WARN message model=m worker=9000`.
fn text(line: &Value, color: bool) -> String {
    let line: RemoteLogLine = serde_json::from_value(line.clone()).unwrap_or_default();
    let clock = line.time.split_once('T').map_or(line.time.as_str(), |(_, clock)| clock);
    let code = match line.level.as_str() {
        "ERROR" => "31",
        "WARN" => "33",
        _ => "",
    };
    let level = if color && !code.is_empty() {
        format!("\x1b[{code}m{:>5}\x1b[0m", line.level)
    } else {
        format!("{:>5}", line.level)
    };
    let mut text = format!("{} {level} {}", clock.trim_end_matches('Z'), plain(&line.message));
    for (name, value) in &line.fields {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text += &format!(" {name}={}", plain(&value));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_short_and_has_its_fields() {
        let line = json!({
            "time": "2026-01-02T03:04:05.678Z", "level": "WARN", "target": "jitney_engine::pool",
            "message": "worker exited", "fields": {"model": "m", "worker": 9000},
        });
        assert_eq!(text(&line, false), "03:04:05.678  WARN worker exited model=m worker=9000");
        assert!(text(&line, true).contains("\x1b[33m WARN\x1b[0m"));
        assert_eq!(text(&json!({"message": "x"}), false), "       x");
    }
}
