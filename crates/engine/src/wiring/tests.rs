//! What parts gave is joined in the form of its reader, and failures are told in words for clients.

use super::run::{join_json, join_values, plain_message};
use crate::call::Output;

fn output(kind: &str, body: &'static [u8]) -> Output {
    let headers = vec![("Content-Type".to_owned(), kind.to_owned())];
    Output { headers, body: body.into(), ..Output::default() }
}

#[test]
fn values_are_joined_to_a_list_or_a_dictionary() {
    let outputs = [output("", b"N"), output("", b"T")];
    assert_eq!(&join_values(&[], &outputs)[..], b"l\x02\0\0\0NT");
    let named = join_values(&["a", "bc"], &outputs);
    assert_eq!(&named[..], b"d\x02\0\0\0s\x01\0\0\0aNs\x02\0\0\0bcT");
}

#[test]
fn clients_of_http_get_json_of_what_json_can_hold() {
    let outputs = [output("application/json", b"[1]"), output("text/plain", b"a \"b\"")];
    assert_eq!(&join_json(&[], &outputs).expect("JSON")[..], br#"[[1],"a \"b\""]"#);
    assert_eq!(&join_json(&["x", "y"], &outputs).expect("JSON")[..], br#"{"x":[1],"y":"a \"b\""}"#);
    let error = join_json(&[], &[output("application/octet-stream", b"\xff")]).expect_err("bytes");
    assert_eq!(error.to_string(), "a part answers with bytes, which no list can hold");
}

#[test]
fn an_exception_for_a_handle_is_told_in_its_message() {
    let told = r#"jitney-exception ["builtins", "ValueError", "too long", [], {}, ""]"#;
    assert_eq!(plain_message(told.to_owned()), "too long");
    assert_eq!(plain_message("jitney-exception 3".to_owned()), "jitney-exception 3");
    assert_eq!(plain_message("other words".to_owned()), "other words");
}
