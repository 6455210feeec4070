//! Cards that are valid and not, and the files that models are opened from.

use super::*;

fn parse(yaml: &str) -> Result<Card, String> {
    Card::parse(yaml, |file| match file {
        "labels.txt" => Ok("cat\ndog\r\n".to_owned()),
        other => Err(format!("{other}: no such file")),
    })
}

fn check(yaml: &str, expected: &str) {
    let error = parse(yaml).expect_err(yaml);
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_card_says_how_requests_become_tensors_and_outputs_answers() {
    let card = parse(
        "name: pets\nversion: 1.5\nmax_batch_size: 16\nsplit: false\ninput: {kind: tensors}\n\
         output: {kind: labels, labels: labels.txt, softmax: true}",
    )
    .expect("a good card");
    let labels = vec!["cat".to_owned(), "dog".to_owned()];
    let expected = Card {
        name: Some("pets".to_owned()),
        version: Some("1.5".to_owned()),
        input: InputKind::Tensors,
        output: OutputKind::Labels(labels::Ranking { labels, top: 5, softmax: true }),
        max_batch_size: Some(16),
        atomic: true,
        padding: None,
    };
    assert_eq!(card, expected);
}

#[test]
fn unknown_keys_and_kinds_are_rejected_with_the_nearest_known() {
    check(
        "max_batchsize: 4",
        r#"unknown key "max_batchsize" (did you mean "max_batch_size"?); known: name,"#,
    );
    check("input: {kind: tensors, begin: 3}", r#"unknown key "input.begin"; known: kind"#);
    check(
        "input: {kind: filebytes}",
        r#"input.kind: unknown "filebytes" (did you mean "file-bytes"?)"#,
    );
    check(
        "output: {kind: labels, lables: x}",
        r#"unknown key "output.lables" (did you mean "labels"?)"#,
    );
}

#[test]
fn wrong_values_are_rejected_with_their_place() {
    check(
        "input: {kind: file-bytes, begin: 1, end: 1, padding: 0}",
        "input: missing field `block`",
    );
    check(
        "input: {kind: file-bytes, begin: 9, end: 1, block: 4, padding: 0}",
        "must not pass block",
    );
    check("max_batch_size: many", "the card: invalid type: string \"many\"");
    check("output: {kind: labels, labels: ../secret.txt}", "does not lie beside the card");
    check("output: {kind: labels, labels: /etc/passwd}", "does not lie beside the card");
    check("output: {kind: labels, labels: other.txt}", "other.txt: no such file");
    check("- a list", "");
}

#[test]
fn a_card_that_does_not_suit_its_model_is_rejected_at_load() {
    let load = |file: &'static [u8], yaml| {
        let card = parse(yaml).expect("a good card");
        let loaded = OnnxSession::from_bytes("tiny", Cow::Borrowed(file), card);
        loaded.expect_err(yaml).to_string()
    };
    assert_eq!(
        load(PAIR, "input: {kind: file-bytes, begin: 1, end: 1, block: 4, padding: 0}"),
        "the card of model \"tiny\": file-bytes makes INT32 of shape [n, 2], \
         the model takes FP32 of shape [n, 3] and FP32 of shape [n, 3]"
    );
    assert_eq!(
        load(PAIR, "output: {kind: labels, labels: labels.txt}"),
        "the card of model \"tiny\": 2 labels for a model of 3 classes"
    );
}

#[test]
fn a_file_is_opened_with_the_card_beside_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("numbers.onnx");
    std::fs::write(&path, LENGTH).expect("written");
    let bare = OnnxSession::open(&path, &Value::Null).expect("it loads");
    assert_eq!((bare.name(), bare.version(), bare.max_batch_size()), ("numbers", "1.0", None));
    std::fs::write(path.with_extension("yaml"), "{name: doubler, max_batch_size: 4}")
        .expect("written");
    let carded = OnnxSession::open(&path, &Value::Null).expect("it loads");
    assert_eq!((carded.name(), carded.max_batch_size()), ("doubler", Some(4)));
    assert_eq!(carded.signature().outputs[1].datatype, Datatype::Bool);
}

#[test]
fn labels_of_several_items_come_as_a_list() {
    let card = parse("output: {kind: labels, labels: labels.txt, top: 1}").expect("a good card");
    let model = with_card(SINGLE, card);
    assert_eq!(ask(&model, "[[0.25, -0.75]]"), serde_json::json!([{"dog": 0.75}]));
}

#[test]
fn files_that_are_no_models_are_rejected() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("broken.onnx");
    let missing = OnnxSession::open(&path, &Value::Null).expect_err("no file").to_string();
    assert!(missing.contains("cannot read") && missing.contains("broken.onnx"), "{missing}");
    // The last of these would keep rten's loader busy for ever.
    for content in [&b""[..], b"no model", &PAIR[..PAIR.len() / 2], &[0xff; 64]] {
        std::fs::write(&path, content).expect("written");
        let error = OnnxSession::open(&path, &Value::Null).expect_err("no model").to_string();
        assert!(error.starts_with("model \"broken\" does not load: "), "{error}");
    }
}

#[test]
fn a_damaged_byte_anywhere_ends_in_an_error_or_a_model() {
    for file in [PAIR, LENGTH] {
        for (place, byte) in
            (0..file.len()).flat_map(|place| [0, 0x80, 0xff].map(|byte| (place, byte)))
        {
            let mut damaged = file.to_vec();
            damaged[place] = byte;
            let _ = OnnxSession::from_bytes("damaged", Cow::Owned(damaged), Card::default());
        }
    }
}

#[test]
fn images_texts_and_labels_have_sections_of_their_own() {
    let card = parse("image: {resize: 256, crop: 224, layout: nhwc}\nlabels: labels.txt\ntop: 1");
    let card = card.expect("a good card");
    assert!(matches!(card.input, InputKind::Image(_)));
    let labels = vec!["cat".to_owned(), "dog".to_owned()];
    let expected = OutputKind::Labels(labels::Ranking { labels, top: 1, softmax: false });
    assert_eq!(card.output, expected);
    let card = parse("text: {tokenizer: tokenizer.json, max_length: 128}").expect("a good card");
    assert!(matches!(card.input, InputKind::Text(_)));
    check("image: {rezise: 3}", r#"unknown key "image.rezise" (did you mean "resize"?)"#);
    check("image: {layout: chw}", "image: unknown variant `chw`");
    check("image: {}\ntext: {tokenizer: t}", "only one of them");
    check("image: {}\ninput: {kind: tensors}", "only one of them");
    check("text: {tokenizer: ../t.json}", "does not lie beside the card");
    check("text: {tokenizer: ''}", "does not lie beside the card");
    check("labels: ../secret.txt", "labels: \"../secret.txt\" does not lie beside the card");
    check("labels: labels.txt\noutput: {kind: tensors}", "only one of them");
    check("softmax: true", "top and softmax need labels");
}

#[test]
fn labels_may_be_json() {
    let labels = |json: &str| {
        let json = json.to_owned();
        let card = Card::parse("labels: names.json", |_| Ok(json))?;
        let OutputKind::Labels(ranking) = card.output else { panic!("labels") };
        Ok::<_, String>(ranking.labels)
    };
    let expected = Ok(vec!["cat".to_owned(), "dog".to_owned()]);
    assert_eq!(labels(r#"["cat", "dog"]"#), expected);
    assert_eq!(labels(r#"{"1": "dog", "0": ["n02123045", "cat"]}"#), expected);
    assert!(labels(r#"{"1": "dog"}"#).is_err());
    assert!(labels("cat").is_err());
}

#[test]
fn files_of_a_card_lie_in_its_directory() {
    let home = tempfile::tempdir().expect("a directory");
    let card = home.path().join("models/pets.yaml");
    std::fs::create_dir(home.path().join("models")).expect("a directory");
    std::fs::write(home.path().join("secret.txt"), "cat").expect("a file");
    std::fs::write(home.path().join("models/own.txt"), "cat").expect("a file");
    std::os::unix::fs::symlink("../secret.txt", home.path().join("models/link.txt"))
        .expect("a link");
    for (file, good) in [("own.txt", true), ("link.txt", false), ("none.txt", false)] {
        std::fs::write(&card, format!("labels: {file}")).expect("a card");
        assert_eq!(Card::read(&card).is_ok(), good, "{file}");
    }
}
