//! Every way in which a request does not fit, with the sentence that its client reads.

use super::*;

fn check(model: &OnnxModel, request: Input, expected: &str) {
    let error = decode(model, &request).expect_err(expected);
    assert_eq!(error.to_string(), expected);
}

fn tensor(name: &str, shape: &str, datatype: &str, data: &str) -> Input {
    body(format!(
        r#"{{"inputs": [{{"name": "{name}", "shape": {shape}, "datatype": "{datatype}"{data}}}]}}"#
    ))
}

#[test]
fn bodies_that_cannot_be_read() {
    let model = model(LENGTH);
    check(&model, input(&[]), "the request has no body");
    check(&model, body(""), "the request has no body");
    let cannot = "cannot read the body: ";
    check(&model, body("[1"), &format!("{cannot}EOF while parsing a list at line 1 column 2"));
    check(&model, body("[1] 2"), &format!("{cannot}trailing characters at line 1 column 5"));
    let ragged = "the lists are ragged: one of 2 stands beside one of 1 at line 1 column 12";
    check(&model, body("[[1], [2, 3]]"), &format!("{cannot}{ragged}"));
    let text = "invalid type: string \"hello\", expected a list of numbers or an object of inputs";
    check(&model, body("\"hello\""), &format!("{cannot}{text} at line 1 column 7"));
    let null = "input \"ids\": invalid type: null, expected a number, a text or a list of them";
    check(&model, body(r#"{"ids": [null]}"#), &format!("{cannot}{null} at line 1 column 13"));
    let mixed = r#""ids" stands beside "inputs": use one of the two at line 1 column 27"#;
    check(&model, body(r#"{"ids": [1], "inputs": [] }"#), &format!("{cannot}{mixed}"));
    check(
        &model,
        input(&[("ids", b"[1, x]")]),
        &format!("{cannot}input \"ids\": expected value at line 1 column 5"),
    );
}

#[test]
fn names_that_the_model_does_not_know_or_misses() {
    let model = model(PAIR);
    check(
        &model,
        body("[1, 2, 3]"),
        r#"a bare list fits models of one input only; this one takes "a", "b": send an object"#,
    );
    check(
        &model,
        body(r#"{"a": [1, 2, 3]}"#),
        r#"input "b" is missing: expected FP32 of shape [n, 3]"#,
    );
    check(
        &model,
        body(r#"{"a": [1, 2, 3], "b": [1, 2, 3], "c": []}"#),
        r#"unknown input "c" (did you mean "a"?); the model takes "a", "b""#,
    );
    check(&model, body("{}"), r#"input "a" is missing: expected FP32 of shape [n, 3]"#);
    check(&model, body(r#"{"a": [1], "a": [2]}"#), r#"input "a" is given twice"#);
    check(
        &model,
        tensor("image", "[1, 3]", "FP32", r#", "data": [1, 2, 3]"#),
        r#"unknown input "image"; the model takes "a", "b""#,
    );
    check(
        &model,
        body(r#"{"inputs": [], "outputs": [{"name": "total"}]}"#),
        r#"unknown output "total"; the model gives "sum", "product""#,
    );
}

#[test]
fn types_and_shapes_that_are_not_the_model_s() {
    let magika = &*MAGIKA;
    let mut request = tensor("bytes", "[1, 10]", "FP32", r#", "data": [0]"#);
    request.route.open_inference = true;
    let sentence = r#"input "bytes": expected INT32 of shape [n, 2048], got FP32 of shape [1, 10]"#;
    check(magika, request, sentence);
    let model = model(LENGTH);
    let expected = r#"input "ids": expected INT64 of shape [n, length], got"#;
    let data = r#", "data": [1, 2]"#;
    check(
        &model,
        tensor("ids", "[1, 2]", "BYTES", data),
        &format!("{expected} BYTES of shape [1, 2]"),
    );
    check(
        &model,
        tensor("ids", "[1, 2]", "BOOL", data),
        &format!("{expected} BOOL of shape [1, 2]"),
    );
    check(&model, tensor("ids", "[2]", "INT64", data), &format!("{expected} INT64 of shape [2]"));
    check(&model, body("[[[1, 2]]]"), &format!("{expected} shape [1, 1, 2]"));
}

#[test]
fn data_that_does_not_fill_its_shape_or_type() {
    let model = model(LENGTH);
    let check = |shape, data, words: &str| {
        check(&model, tensor("ids", shape, "INT64", data), &format!("input \"ids\": {words}"));
    };
    check("[2, 2]", r#", "data": [1, 2, 3]"#, "shape is [2, 2], data has 3 elements");
    check("[1, 4]", r#", "data": [[1, 2], [3, 4]]"#, "shape is [1, 4], data is nested as [2, 2]");
    check(
        "[4294967296, 4294967296]",
        r#", "data": [1]"#,
        "shape is [4294967296, 4294967296], data has 1 elements",
    );
    check("[0, 2]", r#", "data": []"#, "shape [0, 2] holds nothing");
    check("[1, 2]", "", "has no \"data\" (the binary extension is not served)");
    check("[1, 1]", r#", "data": [0.5]"#, "0.5 is not a whole number, but INT64 is expected");
}

#[test]
fn inputs_that_do_not_agree_with_each_other() {
    let words = r#"input "b": dimension "batch" is 1 here, 2 in another input"#;
    check(&model(PAIR), body(r#"{"a": [[1, 2, 3], [4, 5, 6]], "b": [[1, 1, 1]]}"#), words);
}

#[test]
fn more_items_or_shapes_than_the_model_takes() {
    let card = Card { max_batch_size: Some(2), atomic: true, ..Card::default() };
    let model = with_card(LENGTH, card);
    let words = "the request brings 3 items, the model takes at most 2 at once";
    check(&model, body("[[1], [2], [3]]"), words);
    let row = |length: usize| body(format!("[1{}]", ", 1".repeat(length)));
    let under_way: Vec<_> = (0..1024).map(|length| decode(&model, &row(length))).collect();
    let words = "requests of too many different shapes are under way; try again later";
    check(&model, row(1024), words);
    drop(under_way);
    decode(&model, &row(1024)).expect("the others have ended");
}

#[test]
fn a_file_must_not_be_empty() {
    check(&MAGIKA, body(""), "the request has no body");
}

#[test]
fn a_route_of_the_protocol_takes_nothing_else() {
    let model = model(LENGTH);
    for json in ["[1, 2]", r#"{"ids": [1, 2]}"#, "{}"] {
        let mut request = body(json);
        request.route.open_inference = true;
        let words = "expected an object with \"inputs\", as the Open Inference Protocol has it";
        check(&model, request, words);
    }
}

#[test]
fn sentences_stay_short_whatever_was_sent() {
    let model = model(LENGTH);
    let long = "x".repeat(1_000_000);
    let dims = format!("[1{}]", ", 1".repeat(1_000_000));
    let requests = [
        body(format!("\"{long}\"")),
        body(format!(r#"{{"{long}": 1}}"#)),
        tensor(&long, "[1]", "INT64", ""),
        tensor("ids", "[1]", &long, r#", "data": [1]"#),
        tensor("ids", &dims, "INT64", r#", "data": [1]"#),
        body(format!(r#"{{"inputs": [], "outputs": [{{"name": "{long}"}}]}}"#)),
    ];
    for request in requests {
        let error = decode(&model, &request).expect_err("nonsense").to_string();
        assert!(error.len() < 400, "{} bytes", error.len());
    }
}
