//! How rows are written down: an answered row as a line of JSON or a record of CSV, a failed one as
//! a line of JSON with its input, so that it can be tried again.

use std::io;

use serde_json::{Map, Value};

use super::answer::{Trouble, cell};
use super::row::{Given, Row};

/// How an output looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Records of CSV instead of lines of JSON.
    pub csv: bool,
    /// Whether each answer repeats its input.
    pub with_input: bool,
    /// Whether the input is a table, whose columns then are columns of the output.
    pub from_table: bool,
}

impl Layout {
    /// Appends an answered row; `first` if nothing stands before it.
    pub fn answered(self, out: &mut Vec<u8>, row: &Row, json: &str, first: bool) -> io::Result<()> {
        if !self.csv {
            self.line(out, row, "output", json);
            return Ok(());
        }
        let input = self.input_cells(row);
        let mut records = csv::WriterBuilder::new().from_writer(out);
        if first {
            let columns = input.iter().map(|(name, _)| name.as_str());
            records.write_record(["row"].into_iter().chain(columns).chain(["output"]))?;
        }
        let number = row.number.to_string();
        let cells = input.iter().map(|(_, value)| value.as_str());
        let output = cell(json);
        records.write_record([number.as_str()].into_iter().chain(cells).chain([&*output]))?;
        records.flush()
    }

    /// Appends a failed row to an output that holds both kinds.
    pub fn failed_inline(self, out: &mut Vec<u8>, row: &Row, trouble: &Trouble) {
        let error = Value::from(trouble.message.as_str()).to_string();
        self.line(out, row, "error", &error);
        // The closing brace makes room for one more field.
        out.truncate(out.len() - 2);
        out.extend_from_slice(format!(",\"status\":{}}}\n", trouble.status).as_bytes());
    }

    fn line(self, out: &mut Vec<u8>, row: &Row, key: &str, json: &str) {
        out.extend_from_slice(b"{\"row\":");
        out.extend_from_slice(row.number.to_string().as_bytes());
        match &row.given {
            Given::File { name, .. } => field(out, "file", &Value::from(name.as_str()).to_string()),
            Given::Json(input) if self.with_input => field_bytes(out, "input", input),
            Given::Json(_) | Given::Broken { .. } => {}
        }
        field(out, key, json);
        out.extend_from_slice(b"}\n");
    }

    /// The cells between the row's number and its answer.
    fn input_cells(self, row: &Row) -> Vec<(String, String)> {
        match &row.given {
            Given::File { name, .. } => vec![("file".to_owned(), name.clone())],
            Given::Json(input) if self.with_input && self.from_table => {
                let cells: Map<String, Value> = serde_json::from_slice(input).unwrap_or_default();
                let plain = |value: Value| match value {
                    Value::String(text) => text,
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_) => value.to_string(),
                };
                cells.into_iter().map(|(name, value)| (name, plain(value))).collect()
            }
            Given::Json(input) if self.with_input => {
                vec![("input".to_owned(), String::from_utf8_lossy(input).into_owned())]
            }
            Given::Json(_) | Given::Broken { .. } => Vec::new(),
        }
    }
}

/// Appends a failed row to the side file.
pub fn failed(out: &mut Vec<u8>, row: &Row, trouble: &Trouble) {
    out.extend_from_slice(format!("{{\"row\":{}", row.number).as_bytes());
    match &row.given {
        Given::Json(input) => field_bytes(out, "input", input),
        Given::File { name, .. } => field(out, "file", &Value::from(name.as_str()).to_string()),
        Given::Broken { shown, .. } => {
            field(out, "input", &Value::from(shown.as_str()).to_string())
        }
    }
    field(out, "error", &Value::from(trouble.message.as_str()).to_string());
    field(out, "status", &trouble.status.to_string());
    out.extend_from_slice(b"}\n");
}

fn field(out: &mut Vec<u8>, key: &str, json: &str) {
    field_bytes(out, key, json.as_bytes());
}

fn field_bytes(out: &mut Vec<u8>, key: &str, json: &[u8]) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(json);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const PLAIN: Layout = Layout { csv: false, with_input: false, from_table: false };

    fn row(json: &'static str) -> Row {
        Row { number: 3, next: 0, given: Given::Json(Bytes::from(json)) }
    }

    fn file() -> Row {
        let bytes = Bytes::from_static(b"x");
        let given = Given::File { name: "a.png".to_owned(), content_type: "image/png", bytes };
        Row { number: 0, next: 1, given }
    }

    fn written(layout: Layout, row: &Row, json: &str, first: bool) -> String {
        let mut out = Vec::new();
        layout.answered(&mut out, row, json, first).expect("writes");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn lines_name_their_row_and_repeat_the_input_when_asked() {
        let with = Layout { with_input: true, ..PLAIN };
        assert_eq!(written(PLAIN, &row("[1]"), "2", false), "{\"row\":3,\"output\":2}\n");
        let expected = "{\"row\":3,\"input\":[1],\"output\":2}\n";
        assert_eq!(written(with, &row("[1]"), "2", true), expected);
        let expected = "{\"row\":0,\"file\":\"a.png\",\"output\":\"cat\"}\n";
        assert_eq!(written(PLAIN, &file(), "\"cat\"", true), expected);
    }

    #[test]
    fn records_have_a_header_once_and_the_columns_of_a_table() {
        let csv = Layout { csv: true, ..PLAIN };
        assert_eq!(written(csv, &row("1"), "\"a, b\"", true), "row,output\n3,\"a, b\"\n");
        assert_eq!(written(csv, &file(), "7", true), "row,file,output\n0,a.png,7\n");
        let table = Layout { with_input: true, from_table: true, ..csv };
        let input = row(r#"{"name":"x","age":7}"#);
        assert_eq!(written(table, &input, "true", true), "row,name,age,output\n3,x,7,true\n");
        assert_eq!(written(table, &input, "true", false), "3,x,7,true\n");
        let whole = Layout { with_input: true, ..csv };
        assert_eq!(written(whole, &row("[1,2]"), "3", false), "3,\"[1,2]\",3\n");
    }

    #[test]
    fn a_failed_row_says_why_and_keeps_its_input() {
        let trouble = Trouble { status: 500, message: "\"no\"".to_owned() };
        let mut out = Vec::new();
        failed(&mut out, &row("{\"a\":1}"), &trouble);
        PLAIN.failed_inline(&mut out, &row("1"), &trouble);
        let expected = "{\"row\":3,\"input\":{\"a\":1},\"error\":\"\\\"no\\\"\",\"status\":500}\n\
                        {\"row\":3,\"error\":\"\\\"no\\\"\",\"status\":500}\n";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }
}
