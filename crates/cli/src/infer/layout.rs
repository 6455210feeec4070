//! The format of the output: an answered row is a JSON line or a CSV record, a failed row is a JSON
//! line with its input, so that it can be tried again.

use std::borrow::Cow;
use std::io;

use serde_json::{Map, Value};

use super::row::{InputRow, RowContent, RowError, cell};

/// The format of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLayout {
    /// CSV records instead of JSON lines.
    pub csv: bool,
    /// Whether each answer repeats its input.
    pub with_input: bool,
    /// Whether the input is a table; its columns then are columns of a CSV output.
    pub from_table: bool,
}

impl OutputLayout {
    /// Appends an answered row; `first` if the output is still empty.
    pub fn answered(
        self,
        out: &mut Vec<u8>,
        row: &InputRow,
        json: &str,
        first: bool,
    ) -> io::Result<()> {
        if !self.csv {
            let input = input_field(&row.content, self.with_input);
            json_line(out, row.number, input, &[("output", json)]);
            return Ok(());
        }
        let input = self.input_cells(&row.content);
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

    /// Appends a failed row to an output that holds answered and failed rows.
    pub fn failed_inline(self, out: &mut Vec<u8>, row: &InputRow, error: &RowError) {
        failed_line(out, row, input_field(&row.content, self.with_input), error);
    }

    /// The cells between the row's number and its answer.
    fn input_cells(self, content: &RowContent) -> Vec<(String, String)> {
        match content {
            RowContent::File { name, .. } => vec![("file".to_owned(), name.clone())],
            RowContent::Json(input) if self.with_input && self.from_table => {
                let cells: Map<String, Value> = serde_json::from_slice(input).unwrap_or_default();
                let text = |value: Value| cell(&value.to_string()).into_owned();
                cells.into_iter().map(|(name, value)| (name, text(value))).collect()
            }
            RowContent::Json(input) if self.with_input => {
                vec![("input".to_owned(), String::from_utf8_lossy(input).into_owned())]
            }
            RowContent::Json(_) | RowContent::Invalid { .. } => Vec::new(),
        }
    }
}

/// Appends a failed row to the file of failed rows, always with its input.
pub fn failed(out: &mut Vec<u8>, row: &InputRow, error: &RowError) {
    let input = if let RowContent::Invalid { shown, .. } = &row.content {
        Some(("input", Cow::Owned(quoted(shown))))
    } else {
        input_field(&row.content, true)
    };
    failed_line(out, row, input, error);
}

type JsonField<'a> = (&'static str, Cow<'a, str>);

fn input_field(content: &RowContent, with_input: bool) -> Option<JsonField<'_>> {
    match content {
        RowContent::File { name, .. } => Some(("file", Cow::Owned(quoted(name)))),
        RowContent::Json(json) if with_input => Some(("input", String::from_utf8_lossy(json))),
        RowContent::Json(_) | RowContent::Invalid { .. } => None,
    }
}

fn failed_line(out: &mut Vec<u8>, row: &InputRow, input: Option<JsonField<'_>>, error: &RowError) {
    let fields = [("error", quoted(&error.message)), ("status", error.status.to_string())];
    json_line(out, row.number, input, &fields.each_ref().map(|(key, json)| (*key, json.as_str())));
}

/// Appends `{"row": …}` with its fields, whose values are JSON already.
fn json_line(out: &mut Vec<u8>, row: u64, input: Option<JsonField<'_>>, fields: &[(&str, &str)]) {
    out.extend_from_slice(format!("{{\"row\":{row}").as_bytes());
    let input = input.as_ref().map(|(key, json)| (*key, &**json));
    for (key, json) in input.iter().chain(fields) {
        for bytes in [",\"", key, "\":", json] {
            out.extend_from_slice(bytes.as_bytes());
        }
    }
    out.extend_from_slice(b"}\n");
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const PLAIN: OutputLayout = OutputLayout { csv: false, with_input: false, from_table: false };

    fn row(json: &'static str) -> InputRow {
        InputRow { number: 3, next: 0, content: RowContent::Json(Bytes::from(json)) }
    }

    fn file() -> InputRow {
        let bytes = Bytes::from_static(b"x");
        let content =
            RowContent::File { name: "a.png".to_owned(), content_type: "image/png", bytes };
        InputRow { number: 0, next: 1, content }
    }

    fn written(layout: OutputLayout, row: &InputRow, json: &str, first: bool) -> String {
        let mut out = Vec::new();
        layout.answered(&mut out, row, json, first).expect("writes");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn json_lines_have_the_row_number_and_on_request_the_input() {
        let with = OutputLayout { with_input: true, ..PLAIN };
        assert_eq!(written(PLAIN, &row("[1]"), "2", false), "{\"row\":3,\"output\":2}\n");
        let expected = "{\"row\":3,\"input\":[1],\"output\":2}\n";
        assert_eq!(written(with, &row("[1]"), "2", true), expected);
        let expected = "{\"row\":0,\"file\":\"a.png\",\"output\":\"cat\"}\n";
        assert_eq!(written(PLAIN, &file(), "\"cat\"", true), expected);
    }

    #[test]
    fn csv_has_one_header_and_the_columns_of_an_input_table() {
        let csv = OutputLayout { csv: true, ..PLAIN };
        assert_eq!(written(csv, &row("1"), "\"a, b\"", true), "row,output\n3,\"a, b\"\n");
        assert_eq!(written(csv, &file(), "7", true), "row,file,output\n0,a.png,7\n");
        let table = OutputLayout { with_input: true, from_table: true, ..csv };
        let input = row(r#"{"name":"x","age":7}"#);
        assert_eq!(written(table, &input, "true", true), "row,name,age,output\n3,x,7,true\n");
        assert_eq!(written(table, &input, "true", false), "3,x,7,true\n");
        let whole = OutputLayout { with_input: true, ..csv };
        assert_eq!(written(whole, &row("[1,2]"), "3", false), "3,\"[1,2]\",3\n");
    }

    #[test]
    fn a_failed_row_has_its_error_and_its_input() {
        let error = RowError { status: 500, message: "\"no\"".to_owned() };
        let mut out = Vec::new();
        failed(&mut out, &row("{\"a\":1}"), &error);
        PLAIN.failed_inline(&mut out, &row("1"), &error);
        let expected = "{\"row\":3,\"input\":{\"a\":1},\"error\":\"\\\"no\\\"\",\"status\":500}\n\
                        {\"row\":3,\"error\":\"\\\"no\\\"\",\"status\":500}\n";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }
}
