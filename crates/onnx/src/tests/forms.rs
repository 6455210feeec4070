//! Every form in which a request may come, and the form in which it is answered.

use serde_json::json;

use super::*;
use crate::tensor::Tensor;
use jitney_engine::outcome::Cause;
use jitney_engine::tensors::{NamedTensor, TensorRequest};

#[test]
fn an_object_of_lists_is_answered_with_an_object_of_lists() {
    let answer = ask(&model(PAIR), r#"{"b": [[1, 1, 1], [0, 0, 0]], "a": [[1, 2, 3], [4, 5, 6]]}"#);
    let expected =
        json!({"sum": [[2.0, 3.0, 4.0], [4.0, 5.0, 6.0]], "product": [[4.0, 5.0], [10.0, 11.0]]});
    assert_eq!(answer, expected);
}

#[test]
fn one_item_without_the_batch_dimension_is_answered_without_it() {
    let answer = ask(&model(PAIR), r#"{"a": [1, 2, 3], "b": [1, 1, 1]}"#);
    assert_eq!(answer, json!({"sum": [2.0, 3.0, 4.0], "product": [4.0, 5.0]}));
    let answer = ask(&model(LENGTH), "[1, -2]");
    assert_eq!(answer, json!({"twice": [2, -4], "positive": [true, false]}));
    assert_eq!(accept(&model(LENGTH), "[1, -2]").shared.tensors[0].shape(), [1, 2]);
}

#[test]
fn a_bare_list_serves_models_of_one_input() {
    let answer = ask(&model(LENGTH), "[[1, -2], [0, 5]]");
    let expected = json!({"twice": [[2, -4], [0, 10]], "positive": [[true, false], [false, true]]});
    assert_eq!(answer, expected);
    assert_eq!(ask(&model(SINGLE), "[[1, -2]]"), json!([[-1.0, 2.0]]), "one output, no object");
}

#[test]
fn the_open_inference_protocol_goes_round() {
    let request = r#"{"id": "mine", "parameters": {"any": 1}, "inputs": [
        {"name": "ids", "shape": [2, 2], "datatype": "INT64", "data": [1, -2, 0, 5]}]}"#;
    let expected = json!({"model_name": "tiny", "model_version": "2.0", "id": "mine", "outputs": [
        {"name": "twice", "datatype": "INT64", "shape": [2, 2], "data": [2, -4, 0, 10]},
        {"name": "positive", "datatype": "BOOL", "shape": [2, 2], "data": [true, false, false, true]}]});
    assert_eq!(ask(&model(LENGTH), request), expected);
}

#[test]
fn the_open_inference_protocol_may_nest_its_data_choose_outputs_and_leave_the_id_out() {
    let request = r#"{"outputs": [{"name": "twice"}], "inputs": [
        {"data": [[1, -2], [0, 5]], "datatype": "INT32", "shape": [2, 2], "name": "ids"}]}"#;
    let expected = json!({"model_name": "tiny", "model_version": "2.0", "outputs": [
        {"name": "twice", "datatype": "INT64", "shape": [2, 2], "data": [2, -4, 0, 10]}]});
    assert_eq!(ask(&model(LENGTH), request), expected);
}

#[test]
fn a_form_may_bring_one_part_per_input_or_the_whole_under_data() {
    let model = model(PAIR);
    let parts = input(&[("a", b"[1, 2, 3]"), ("b", b"[1, 1, 1]")]);
    let whole = input(&[("data", br#"{"a": [1, 2, 3], "b": [1, 1, 1]}"#)]);
    let accepted = [parts, whole].map(|input| decode(&model, &input).expect("accepted"));
    let answers = answers(&model, &accepted);
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], r#"{"sum":[2.0,3.0,4.0],"product":[4.0,5.0]}"#);
}

#[test]
fn a_batch_of_several_requests_equals_one_by_one() {
    let model = model(PAIR);
    let requests = [
        accept(&model, r#"{"a": [1, 2, 3], "b": [1, 1, 1]}"#),
        accept(
            &model,
            r#"{"a": [[1, 2, 3], [4, 5, 6], [7, 8, 9]], "b": [[1, 1, 1], [0, 0, 0], [2, 2, 2]]}"#,
        ),
        accept(
            &model,
            r#"{"inputs": [{"name": "b", "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]},
                {"name": "a", "shape": [2, 3], "datatype": "FP32", "data": [6, 5, 4, 3, 2, 1]}]}"#,
        ),
    ];
    assert_eq!(requests.iter().map(TensorInput::items).collect::<Vec<_>>(), [1, 3, 2]);
    let alone: Vec<String> = requests
        .iter()
        .flat_map(|request| answers(&model, std::slice::from_ref(request)))
        .collect();
    assert_eq!(answers(&model, &requests), alone);
}

#[test]
fn requests_of_different_lengths_are_kept_apart_by_their_bucket() {
    let model = model(LENGTH);
    let accepted = ["[1, 2]", "[[3, 4], [5, 6]]", "[1, 2, 3]"]
        .map(|json| decode(&model, &body(json)).expect("accepted"));
    assert_eq!(accepted[0].group(), accepted[1].group());
    assert_ne!(accepted[0].group(), accepted[2].group());
    let alone: Vec<_> = accepted
        .iter()
        .flat_map(|request| answers(&model, std::slice::from_ref(request)))
        .collect();
    assert_eq!(answers(&model, &accepted), alone, "should they ever meet");
}

#[test]
fn requests_of_different_lengths_meet_where_the_card_lets_them_be_padded() {
    let card = |yaml: &str| Card::parse(yaml, |_| Err(String::new())).expect("a good card");
    let model = with_card(LENGTH, card("padding: {dimension: length, values: {ids: 7}}"));
    let accepted = ["[1, 2]", "[[3, 4, 5], [5, 6, 7]]", "[[-1]]"]
        .map(|json| decode(&model, &body(json)).expect("accepted"));
    assert_eq!(
        accepted.each_ref().map(|it| (it.group(), it.shared.length)),
        [2, 3, 1].map(|it| (0, Some(it)))
    );
    let inputs = accepted;
    let alone: Vec<String> =
        inputs.iter().flat_map(|request| answers(&model, std::slice::from_ref(request))).collect();
    assert_eq!(answers(&model, &inputs), alone, "no client sees the padding");
    let parts: Vec<_> = inputs.iter().flat_map(|it| it.clone().split(1)).collect();
    let BatchOutcome::Items(items) = run(&model, &parts) else { panic!("the batch failed") };
    let body = |item: Result<jitney_engine::call::Output, _>| item.expect("an answer").body;
    let together: Vec<_> = items.into_iter().map(body).filter(|it| !it.is_empty()).collect();
    assert_eq!(together, alone, "nor does one in parts");
}

#[test]
fn a_model_of_fixed_batch_takes_one_request_at_a_time() {
    let model = model(SINGLE);
    assert_eq!(model.max_batch_size(), Some(1));
    let requests = ["[[1, 2]]", "[[3, 4]]"].map(|json| accept(&model, json));
    assert_eq!(answers(&model, &requests), ["[[-1.0,-2.0]]", "[[-3.0,-4.0]]"]);
}

#[test]
fn a_model_that_loses_rows_by_design_is_not_batched() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("lossy.onnx");
    std::fs::write(&path, LOSSY).expect("written");
    let model = OnnxSession::open(&path, &Value::Null).expect("it loads");
    assert_eq!(model.max_batch_size(), Some(1));
    assert_eq!(ask(&model, "[[1, 2], [3, 4]]"), json!([[4.0, 6.0]]), "the request's own rows");
}

#[test]
fn an_output_of_another_length_fails_the_batch() {
    let model = model(FUSSY);
    assert_eq!(ask(&model, "[1, 2, 3, 4]"), json!([1.0, 2.0, 3.0, 4.0]));
    let failure = failure(&model, &["[1, 2]", "[3, 4]"].map(|json| accept(&model, json)));
    assert_eq!(failure.cause, Cause::WrongLength);
    assert_eq!(failure.message, r#"output "y" has shape [1, 4] for a batch of 2 items"#);
}

#[test]
fn a_shape_that_the_model_cannot_be_run_on_is_the_client_s_mistake() {
    let model = model(FUSSY);
    let failure = failure(&model, &[accept(&model, "[1, 2, 3]")]);
    assert_eq!((failure.cause, failure.status), (Cause::Stated, Some(400)));
    assert!(failure.message.contains("does not match target shape"), "{}", failure.message);
}

#[test]
fn tensors_are_answered_with_tensors_of_the_declared_types() {
    let model = model(LENGTH);
    let ids = Tensor::of(Datatype::Int64, vec![2, 2], &[1i64, -2, 0, 5]).expect("filled");
    let narrow = Tensor::of(Datatype::Int32, vec![1, 2], &[3i32, 4]).expect("filled");
    let request = |ids: Tensor, outputs: &[&str]| {
        let outputs = outputs.iter().map(|name| (*name).into()).collect();
        let inputs = vec![ids.named("ids").expect("filled")];
        let tensors = Some(Arc::new(TensorRequest { inputs, outputs }));
        decode(&model, &Input { tensors, ..input(&[]) })
    };
    let accepted = [request(ids, &[]), request(narrow, &["positive", "twice"])].map(Result::unwrap);
    let BatchOutcome::Items(items) = run(&model, &accepted) else { panic!("the batch failed") };
    let shown = |item: Result<jitney_engine::call::Output, _>| -> Vec<_> {
        let tensors = item.expect("an answer").tensors.expect("tensors").into_vec();
        let shown =
            |it: NamedTensor| (it.name().to_owned(), it.shape().to_vec(), it.data().to_vec());
        tensors.into_iter().map(shown).collect()
    };
    let items: Vec<_> = items.into_iter().map(shown).collect();
    let twice = |numbers: &[i64], shape: &[usize]| {
        ("twice".to_owned(), shape.to_vec(), bytemuck::cast_slice(numbers).to_vec())
    };
    let positive =
        |truths: &[u8], shape: &[usize]| ("positive".to_owned(), shape.to_vec(), truths.to_vec());
    assert_eq!(items[0], [twice(&[2, -4, 0, 10], &[2, 2]), positive(&[1, 0, 0, 1], &[2, 2])]);
    assert_eq!(items[1], [positive(&[1, 1], &[1, 2]), twice(&[6, 8], &[1, 2])], "as asked for");
    let words =
        |result: Result<TensorInput, bad_input::BadInput>| result.expect_err("wrong").to_string();
    let other = Tensor::of(Datatype::Fp32, vec![1, 2], &[1f32, 2.0]).expect("filled");
    let expected = r#"input "ids": expected INT64 of shape [n, length], got FP32 of shape [1, 2]"#;
    assert_eq!(words(request(other.clone(), &[])), expected);
    assert!(words(request(other, &["nothing"])).contains("unknown output \"nothing\""));
}
