//! Requests in portions: their answers are those of the whole, whoever they rode with.

use proptest::prelude::*;

use super::*;

fn rows(count: usize, seed: usize) -> String {
    let row = |row: usize| format!("[{}, {}]", seed + row, 1000 + row);
    format!("[{}]", (0..count).map(row).collect::<Vec<_>>().join(", "))
}

/// The bodies of a batch; empty for portions that do not speak for their request.
fn bodies(model: &Arc<OnnxModel>, inputs: &[TensorInput]) -> Vec<String> {
    let BatchOutcome::Items(items) = run(model, inputs) else { panic!("the batch failed") };
    let text = |item: Result<jitney_engine::call::Output, ModelFailure>| {
        String::from_utf8(item.expect("an answer").body.to_vec()).expect("JSON is UTF-8")
    };
    items.into_iter().map(text).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the sizes of requests, portions and batches and the order in which the portions ride:
    /// every request has exactly one answer, that of the whole.
    #[test]
    fn portions_in_any_order_make_the_same_answer(
        counts in prop::collection::vec(1usize..12, 1..4),
        portion in 1u32..5,
        most in 1usize..7,
        shuffle in any::<bool>(),
    ) {
        let model = model(LENGTH);
        let wholes: Vec<_> = counts
            .iter()
            .enumerate()
            .map(|(seed, count)| accept(&model, &rows(*count, seed * 100)))
            .collect();
        let mut portions: Vec<(usize, TensorInput)> = Vec::new();
        for (owner, whole) in wholes.iter().enumerate() {
            let parts = whole.clone().split(portion);
            prop_assert!(parts.iter().all(|part| part.rows().len() <= portion as usize));
            portions.extend(parts.into_iter().map(|part| (owner, part)));
        }
        if shuffle {
            portions.reverse();
        }
        let mut answers = vec![Vec::new(); wholes.len()];
        for batch in portions.chunks(most) {
            let inputs: Vec<_> = batch.iter().map(|(_, part)| part.clone()).collect();
            for ((owner, _), body) in batch.iter().zip(bodies(&model, &inputs)) {
                answers[*owner].extend((!body.is_empty()).then_some(body));
            }
        }
        let expected: Vec<_> = wholes.iter().map(|whole| bodies(&model, std::slice::from_ref(whole))).collect();
        prop_assert_eq!(answers, expected);
    }
}

#[test]
fn portions_beside_each_other_are_one_leg_and_a_whole_request_is_not_copied() {
    let model = model(LENGTH);
    let portions = accept(&model, &rows(5, 0)).split(2);
    let legs = crate::batch::legs(&portions.iter().collect::<Vec<_>>());
    assert_eq!((legs.len(), legs[0].is_whole(), legs[0].inputs.clone()), (1, true, 0..3));
    let apart = [portions[0].clone(), portions[2].clone()];
    assert_eq!(crate::batch::legs(&apart.iter().collect::<Vec<_>>()).len(), 2);
}

#[test]
fn a_piece_that_rides_twice_changes_nothing() {
    let model = model(LENGTH);
    let whole = accept(&model, &rows(3, 7));
    let portions = whole.clone().split(1);
    assert_eq!(bodies(&model, &portions[..2]), ["", ""]);
    assert_eq!(bodies(&model, &portions[1..2]), [""]);
    let answer = bodies(&model, &[whole]);
    assert_eq!(bodies(&model, &portions[2..]), answer);
    assert_eq!(bodies(&model, &portions[..1]), answer, "all is there, so this one can speak too");
}

#[test]
fn a_request_larger_than_the_card_allows_is_taken_unless_it_must_stay_whole() {
    let five = rows(5, 0);
    for atomic in [false, true] {
        let card = Card { max_batch_size: Some(2), atomic, ..Card::default() };
        assert_eq!(with_card(LENGTH, card).accept(body(&five)).is_ok(), !atomic);
    }
}
