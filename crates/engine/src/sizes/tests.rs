//! Sizes of whole requests: which value is whose, expressions, and what a parser says to the same bytes.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::call::{CallRoute, HeaderBlock, ValueBytes};

fn reader(sizes: Value) -> SizeReader {
    SizeReader::new(serde_json::from_value(sizes).expect("sizes"))
}

fn array(name: &str) -> Value {
    json!({"name": name, "form": "array", "required": true, "rows": true})
}

fn parameter(name: &str, content_type: &str, value: impl Into<Bytes>) -> Parameter {
    let value: Bytes = value.into();
    let (name, content_type) = (name.to_owned().into(), content_type.to_owned().into());
    Parameter { name, content_type, value: value.into() }
}

fn input(parameters: Vec<Parameter>) -> Input {
    let (id, headers, route) = (String::new(), HeaderBlock::default(), CallRoute::default());
    Input { id, headers, route, parameters, tensors: None }
}

fn json_body(reader: &SizeReader, body: &str) -> RequestSize {
    reader.read(&input(vec![parameter("body", JSON_TYPE, body.to_owned())]))
}

#[test]
fn a_body_brings_as_many_items_as_its_array_has_rows() {
    let one = reader(json!({"params": [array("x")]}));
    let items = |body: &str| json_body(&one, body).items;
    assert_eq!(items("[[1, 2], [3, 4], [5, 6]]"), Some(3));
    assert_eq!(items(r#"{"x": [[1], [2]]}"#), Some(2));
    assert_eq!(items(r#"{"x": [1], "x": [1, 2, 3, 4]}"#), Some(4), "the last of a name counts");
    assert_eq!(items(r#"{"y": [[1], [2]]}"#), Some(1), "no argument by name, but the one value");
    assert_eq!([items("[]"), items("7"), items("[[1, 2"), items("")], [Some(0), None, None, None]);
    let raw = |content_type: &str, body: &str| {
        one.read(&input(vec![parameter("body", content_type, body.to_owned())])).items
    };
    assert_eq!(raw("application/octet-stream", "[1, 2]"), Some(2));
    assert_eq!(one.read(&input(vec![parameter("x", "", "[1, 2]")])).items, Some(2));
    assert_eq!(one.read(&input(Vec::new())).items, None);
}

#[test]
fn a_text_that_would_take_long_to_read_counts_as_unknown() {
    let one = reader(json!({"params": [array("x")]}));
    let body = |spaces: usize| format!("[1,{}2]", " ".repeat(spaces));
    assert_eq!(json_body(&one, &body(SCAN_BYTES_MAX - 5)).items, Some(2));
    assert_eq!(json_body(&one, &body(SCAN_BYTES_MAX - 4)).items, None);
}

#[test]
fn the_batch_dimension_may_be_any() {
    let along = |dim: i32| {
        let reader = reader(json!({"params": [array("x")], "batch_dim": dim}));
        json_body(&reader, "[[[1], [2], [3]], [[4], [5], [6]]]").items
    };
    assert_eq!([0, 1, 2, 3].map(along), [Some(2), Some(3), Some(1), None]);
    assert_eq!([-1, -2, -3, -4].map(along), [Some(1), Some(3), Some(2), None]);
}

#[test]
fn of_several_parameters_those_that_come_count() {
    let mask = json!({"name": "mask", "form": "array", "rows": true});
    let words = json!({"name": "words", "form": "text"});
    let both = reader(json!({"params": [words, array("x"), mask]}));
    let items = |body: &str| json_body(&both, body).items;
    assert_eq!(items(r#"{"words": "[1, 2]", "mask": [1, 2, 3]}"#), Some(3));
    assert_eq!(items(r#"{"x": [1], "mask": [1]}"#), Some(1));
    assert_eq!(items("[[1], [2]]"), Some(2), "the body is for the one that is required");
    let given = vec![parameter("x", "", "[1, 2]"), parameter("body", JSON_TYPE, "{\"x\": [1]}")];
    assert_eq!(both.read(&input(given)).items, Some(2), "what came by name counts");
}

#[test]
fn without_a_hint_only_arrays_have_rows() {
    let any = json!({"name": "x", "form": "any", "required": true, "rows": true});
    let plain = reader(json!({"params": [any]}));
    assert_eq!(json_body(&plain, "[1, 2, 3]").items, None);
    let array = b"t\x01\0\0\0a\x03|u1\x01\x05\0\0\0\0\0\0\0.....";
    assert_eq!(plain.read(&input(vec![parameter(CALL_PARAMETER, "", &array[..])])).items, Some(5));
    let list = b"t\x01\0\0\0l\x02\0\0\0NN";
    assert_eq!(plain.read(&input(vec![parameter(CALL_PARAMETER, "", &list[..])])).items, None);
}

#[test]
fn expressions_are_evaluated_from_the_left() {
    let text = json!({"name": "text", "form": "text", "required": true});
    let sizes = |cost: Value, bucket: Value| {
        let sizes = json!({"params": [text, array("x")], "cost": cost, "bucket": bucket});
        let body = r#"{"text": "seven ä", "x": [[1, 2, 3], [4, 5, 6]]}"#;
        let RequestSize { cost, bucket, .. } = json_body(&reader(sizes), body);
        (cost, bucket)
    };
    let dim = |param: usize, dim: i32| json!({"dim": {"param": param, "dim": dim}});
    let (length, width) = (dim(0, 0), dim(1, 1));
    assert_eq!(sizes(json!([length]), json!([dim(1, 0)])), (Some(7), Some(2)));
    assert_eq!(
        sizes(json!([length, {"over": 4}]), json!([length, {"over": 8}])),
        (Some(1), Some(0))
    );
    assert_eq!(sizes(json!([length, {"over": 2}, {"times": 5}]), Value::Null), (Some(15), None));
    assert_eq!(sizes(json!([dim(1, 0), width]), json!([dim(0, 3)])), (Some(6), Some(1)));
    assert_eq!(sizes(json!([{"over": 100}]), json!([dim(9, 0)])), (Some(1), Some(1)));
}

#[test]
fn a_value_is_as_long_as_python_finds_it() {
    let length = |form: &str, content_type: &str, body: &str| {
        let param = json!({"name": "x", "form": form, "required": true});
        let cost = json!([{"dim": {"param": 0, "dim": 0}}]);
        let reader = reader(json!({"params": [param], "cost": cost}));
        let body = parameter("body", content_type, body.to_owned());
        reader.read(&input(vec![body])).cost
    };
    for (form, content_type, body, expected) in [
        ("text", "text/plain", "grün", 4),
        ("text", JSON_TYPE, r#""gr\u00fcn""#, 4),
        ("bytes", "", "grün", 5),
        ("bytes", JSON_TYPE, "\"grün\"", 5),
        ("json", "", "[1, 2, 3]", 3),
        ("json", JSON_TYPE, r#"{"a": 1, "b": 2}"#, 2),
        ("any", JSON_TYPE, "[1, 2, 3]", 3),
        ("any", "text/plain", "[1]", 3),
        ("any", "", "ü", 2),
        ("frame", "text/csv", "a,b\n1,2\n3,4\n", 2),
        ("frame", "", r#"{"a": [1, 2, 3]}"#, 3),
        ("json", "", "7", 1),
    ] {
        assert_eq!(length(form, content_type, body), Some(expected), "{form} {body}");
    }
}

#[test]
fn an_array_in_pieces_is_not_joined_for_its_head() {
    let one = reader(json!({"params": [array("x")]}));
    let head = b"\x93NUMPY\x01\0\x3a\0{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}\n";
    let items = |pieces: &[&[u8]]| {
        let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
        let mut body = parameter("body", "", "");
        body.value = ValueBytes::from_pieces(pieces);
        let mut sent = input(vec![body]);
        let items = one.read(&sent).items;
        let value = &mut sent.parameters[0].value;
        value.settle();
        (items, value.pieces().len())
    };
    assert_eq!(items(&[head, &[0; 24]]), (Some(3), 2));
    assert_eq!(
        items(&[&head[..20], &head[20..], &[0; 24]]),
        (Some(3), 1),
        "joined where it must be"
    );
}

#[test]
fn the_corpus_holds() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/request_sizes");
    let files = std::fs::read_dir(directory).expect("a corpus");
    let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    assert!(!files.is_empty());
    files.iter().for_each(|file| fuzzing::request_sizes(&std::fs::read(file).expect("bytes")));
}

/// JSON values of some depth, with texts that look like structure.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        r#"[\[\]{},:"\\ a\u{fc}\n]{0,6}"#.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 5, |inner| {
        let object = prop::collection::btree_map("[xy\"]{1,2}", inner.clone(), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(Value::from),
            object.prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The sizes of nested lists, read from the parsed value.
fn shape(value: &Value) -> Vec<u64> {
    let mut sizes = Vec::new();
    let mut next = Some(value);
    while let Some(Value::Array(list)) = next {
        sizes.push(list.len() as u64);
        next = list.first();
    }
    sizes
}

proptest! {
    #[test]
    fn a_scan_counts_what_a_parser_counts(x in any_json(), y in any_json(), pretty in any::<bool>()) {
        let body = json!({"a": y, "x": x, "z": y});
        let text = if pretty { format!("{body:#}") } else { body.to_string() };
        let mut found = None;
        let keys = JsonReader::new(text.as_bytes()).object(|reader, key| {
            if key != b"x" {
                return reader.skip();
            }
            found = Some(reader.extent(ValueForm::Array)?);
            Some(())
        });
        prop_assert_eq!(keys, Some(3));
        let found = found.expect("x is there");
        let sizes: Vec<u64> = (0..).map_while(|dim| found.dim(dim)).collect();
        match &x {
            Value::Array(_) => prop_assert_eq!(sizes, shape(&x)),
            Value::String(text) => prop_assert_eq!(sizes, [text.chars().count() as u64]),
            Value::Object(object) => prop_assert_eq!(sizes, [object.len() as u64]),
            Value::Null | Value::Bool(_) | Value::Number(_) => prop_assert!(sizes.is_empty()),
        }
        for end in 0..text.len() {
            let cut = JsonReader::new(&text.as_bytes()[..end]).object(|reader, _| reader.skip());
            prop_assert_eq!(cut, None);
        }
    }

    #[test]
    fn any_bytes_are_read_or_left(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzzing::request_sizes(&bytes);
    }
}
