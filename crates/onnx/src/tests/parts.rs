//! Requests in parts: their answers are those of the whole, whatever they shared batches with.

use proptest::prelude::*;

use super::*;

fn rows(count: usize, seed: usize) -> String {
    let row = |row: usize| format!("[{}, {}]", seed + row, 1000 + row);
    format!("[{}]", (0..count).map(row).collect::<Vec<_>>().join(", "))
}

/// The bodies of a batch; empty for parts that do not speak for their request.
fn bodies(model: &OnnxSession, inputs: &[TensorInput]) -> Vec<String> {
    let BatchOutcome::Items(items) = run(model, inputs) else { panic!("the batch failed") };
    let text = |item: Result<jitney_engine::call::Output, ModelFailure>| {
        String::from_utf8(item.expect("an answer").body.to_vec()).expect("JSON is UTF-8")
    };
    items.into_iter().map(text).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the sizes of requests, parts and batches and the order in which the parts run:
    /// every request has exactly one answer, that of the whole.
    #[test]
    fn parts_in_any_order_make_the_same_answer(
        counts in prop::collection::vec(1usize..12, 1..4),
        size in 1u32..5,
        most in 1usize..7,
        shuffle in any::<bool>(),
    ) {
        let model = model(LENGTH);
        let wholes: Vec<_> = counts
            .iter()
            .enumerate()
            .map(|(seed, count)| accept(&model, &rows(*count, seed * 100)))
            .collect();
        let mut all: Vec<(usize, TensorInput)> = Vec::new();
        for (owner, whole) in wholes.iter().enumerate() {
            let parts = whole.clone().split(size);
            prop_assert!(parts.iter().all(|part| part.rows().len() <= size as usize));
            all.extend(parts.into_iter().map(|part| (owner, part)));
        }
        if shuffle {
            all.reverse();
        }
        let mut answers = vec![Vec::new(); wholes.len()];
        for batch in all.chunks(most) {
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
fn parts_that_follow_each_other_are_one_member_and_a_whole_request_is_not_copied() {
    let model = model(LENGTH);
    let parts = accept(&model, &rows(5, 0)).split(2);
    let members = crate::batch::members(&parts.iter().collect::<Vec<_>>());
    assert_eq!((members.len(), members[0].is_whole(), members[0].inputs.clone()), (1, true, 0..3));
    let apart = [parts[0].clone(), parts[2].clone()];
    assert_eq!(crate::batch::members(&apart.iter().collect::<Vec<_>>()).len(), 2);
}

#[test]
fn a_part_that_runs_twice_changes_nothing() {
    let model = model(LENGTH);
    let whole = accept(&model, &rows(3, 7));
    let parts = whole.clone().split(1);
    assert_eq!(bodies(&model, &parts[..2]), ["", ""]);
    assert_eq!(bodies(&model, &parts[1..2]), [""]);
    let answer = bodies(&model, &[whole]);
    assert_eq!(bodies(&model, &parts[2..]), answer);
    assert_eq!(bodies(&model, &parts[..1]), answer, "all is there, so this one can speak too");
}

#[test]
fn a_request_larger_than_the_card_allows_is_taken_unless_it_must_stay_whole() {
    let five = rows(5, 0);
    for atomic in [false, true] {
        let card = Card { max_batch_size: Some(2), atomic, ..Card::default() };
        assert_eq!(decode(&with_card(LENGTH, card), &body(&five)).is_ok(), !atomic);
    }
}
