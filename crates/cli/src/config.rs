//! `jitney config`: every effective value and where it comes from. The commands themselves say what
//! they would use ([`crate::serve::explain`], [`crate::torchserve::explain`]); here it is printed.

pub mod model;

use serde_json::{Value, json};

use crate::env::Env;
use crate::failure::Failure;
use crate::flags::ServeFlags;
use crate::flags::config::{ConfigFlags, ConfigOf};
use crate::origin::Origin;
use crate::{console, serve, torchserve};

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The model it is about; none for the server.
    pub model: Option<String>,
    /// The key, as the file spells it.
    pub key: String,
    /// The value; none where there is none unless somebody gives one.
    pub value: Option<String>,
    /// Where it comes from.
    pub origin: Origin,
}

/// Prints the configuration and returns the exit code.
pub fn main(flags: ConfigFlags, env: &Env) -> u8 {
    let json = flags.json;
    match rows(flags, env) {
        Ok(rows) => {
            console::out(if json { as_json(&rows) } else { as_text(&rows) });
            0
        }
        Err(failure) => {
            console::err(format!("error: {failure}"));
            failure.code
        }
    }
}

fn rows(flags: ConfigFlags, env: &Env) -> Result<Vec<Row>, Failure> {
    match flags.of {
        Some(ConfigOf::Torchserve(flags)) => torchserve::explain(&flags, env),
        Some(ConfigOf::Serve(flags)) => serve::explain(flags, env),
        None => serve::explain(ServeFlags::default(), env),
    }
}

fn as_text(rows: &[Row]) -> String {
    let name = |row: &Row| match &row.model {
        Some(model) => format!("{model}: {}", row.key),
        None => row.key.clone(),
    };
    let width = rows.iter().map(|row| name(row).len()).max().unwrap_or(0);
    let value = |row: &Row| row.value.clone().unwrap_or_else(|| "-".to_owned());
    let room = rows.iter().map(|row| value(row).len()).filter(|length| *length <= 48).max();
    let room = room.unwrap_or(0);
    let lines: Vec<String> = rows
        .iter()
        .map(|row| format!("{:<width$}  {:<room$}  {}", name(row), value(row), row.origin))
        .collect();
    lines.join("\n")
}

fn as_json(rows: &[Row]) -> String {
    let objects: Vec<Value> = rows
        .iter()
        .map(|row| {
            let place = Some(row.origin.place()).filter(|place| !place.is_empty());
            json!({
                "model": row.model,
                "key": row.key,
                "value": row.value,
                "origin": row.origin.kind(),
                "from": place,
            })
        })
        .collect();
    format!("{:#}", Value::from(objects))
}
