//! Sizes of values in JSON, whole and cut short.

use super::*;

fn dims(json: &str) -> Option<Vec<u64>> {
    let extent = JsonReader::new(json.as_bytes()).extent(ValueForm::Array)?;
    Some((0..).map_while(|dim| extent.dim(dim)).collect())
}

#[test]
fn a_list_has_the_dimensions_of_its_first_elements() {
    for (json, expected) in [
        ("[]", &[0][..]),
        (" [ 1 , 2.5e3,\n-3 ] ", &[3]),
        ("[[1, 2], [3, 4], [5]]", &[3, 2]),
        ("[[[1], [2]]]", &[1, 2, 1]),
        ("[[], []]", &[2, 0]),
        (r#"["[1, 2", "\"],[", "\\"]"#, &[3]),
        (r#"[{"a": [1, 2, "}"]}, null, true, [1, 2]]"#, &[4]),
        ("[NaN, Infinity, -Infinity]", &[3]),
        (r#""gr\u00fcn \ud83d\ude00""#, &[6]),
        ("\"grün\"", &[4]),
        (r#"{"a": 1, "b": [1, 2]}"#, &[2]),
        ("7", &[]),
    ] {
        assert_eq!(dims(json).as_deref(), Some(expected), "{json}");
    }
}

#[test]
fn a_table_of_columns_has_the_rows_of_its_first_column() {
    let rows = |json: &str| {
        JsonReader::new(json.as_bytes()).extent(ValueForm::Frame).and_then(|extent| extent.dim(0))
    };
    assert_eq!(rows(r#"{"a": [1, 2, 3], "b": [4, 5, 6]}"#), Some(3));
    assert_eq!(rows(r#"{"a": 1, "b": 2}"#), Some(1));
    assert_eq!(rows(r#"[{"a": 1}, {"a": 2}]"#), Some(2));
}

#[test]
fn text_that_is_no_json_has_no_size() {
    for json in [
        "",
        " ",
        "[",
        "[1",
        "[1,",
        "[[1, 2]",
        "\"",
        "\"\\",
        "\"abc\\\"",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\": 1",
        "{a: 1}",
        "{\"a\" 1}",
        "{\"a\": 1 \"b\": 2}",
        "]",
        ",",
    ] {
        assert_eq!(dims(json), None, "{json:?}");
    }
    for end in 0..12 {
        assert_eq!(dims(&"[[1, \"]\"], 2]"[..end]), None);
    }
}

#[test]
fn depth_costs_neither_stack_nor_time() {
    let deep = 1 << 20;
    let json = "[".repeat(deep) + &"]".repeat(deep);
    assert_eq!(dims(&json), Some(vec![1; DIMS_MAX]));
    assert_eq!(dims(&format!("[1, {json}]")), Some(vec![2]));
    assert_eq!(dims(&"[".repeat(deep)), None);
}

#[test]
fn the_keys_of_an_object_are_read_as_text_and_all_of_them_are_seen() {
    let json = br#"{"x": [1], "\u0078": [1, 2, 3], "y": {"x": [0]}, "z": "x"}"#;
    let (mut found, mut keys) = (Vec::new(), Vec::new());
    let count = JsonReader::new(json).object(|reader, key| {
        keys.push(String::from_utf8_lossy(key).into_owned());
        if key == b"x" {
            found.push(reader.extent(ValueForm::Array)?.dim(0));
            return Some(());
        }
        reader.skip()
    });
    assert_eq!(count, Some(4));
    assert_eq!(keys, ["x", "x", "y", "z"]);
    assert_eq!(found, [Some(1), Some(3)], "Python keeps the last of a name");
}

#[test]
fn an_open_inference_request_tells_its_first_dimension() {
    let input = r#"{"name": "a", "datatype": "FP32", "data": [[1], [2]], "shape": [2, 1]}"#;
    for (json, expected) in [
        (format!(r#"{{"id": "7", "inputs": [{input}]}}"#), Some(2)),
        (format!(r#"{{"inputs": [{input}, {{"shape": [9]}}]}}"#), Some(2)),
        (r#"{"inputs": [{"shape": [-1]}]}"#.to_owned(), None),
        (r#"{"inputs": [{"shape": []}]}"#.to_owned(), None),
        (r#"{"inputs": [], "shape": [3]}"#.to_owned(), None),
        (r#"{"inputs": [{"shape": [1"#.to_owned(), Some(1)),
        (r#"{"inputs": {"shape": [1]}}"#.to_owned(), None),
        ("[1]".to_owned(), None),
    ] {
        assert_eq!(open_inference(json.as_bytes()), expected, "{json}");
    }
}
