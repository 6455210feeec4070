//! What reads as numbers, what does not, and in which words it is refused.

use super::*;

fn shape(json: &str) -> Vec<usize> {
    serde_json::from_str::<Numbers>(json).expect(json).shape
}

fn refusal(json: &str) -> String {
    serde_json::from_str::<Numbers>(json).expect_err(json).to_string()
}

fn narrow(json: &str, datatype: Datatype) -> Result<Data, String> {
    serde_json::from_str::<Numbers>(json).expect(json).narrow(datatype)
}

#[test]
fn the_shape_is_read_from_the_nest() {
    assert_eq!(shape("7"), Vec::<usize>::new());
    assert_eq!(shape("[1, 2]"), [2]);
    assert_eq!(shape("[[1, 2], [3, 4], [5, 6]]"), [3, 2]);
    assert_eq!(shape("[[[1]], [[2]]]"), [2, 1, 1]);
    assert_eq!(shape("[]"), [0]);
    assert_eq!(shape("[[], []]"), [2, 0]);
}

#[test]
fn ragged_nests_are_refused_wherever_the_unevenness_is() {
    for json in ["[[1], [2, 3]]", "[[1, 2], [3]]", "[1, [2]]", "[[1], 2]", "[[], [1]]", "[[], 1]"] {
        assert!(refusal(json).contains("ragged"), "{json}: {}", refusal(json));
    }
    let expected = "the lists are ragged: one of 2 stands beside one of 1 at line 1 column 12";
    assert_eq!(refusal("[[1], [2, 3]]"), expected);
}

#[test]
fn what_is_not_a_number_is_refused() {
    for json in ["[null]", "[\"1\"]", "[{}]", "[NaN]", "[Infinity]", "[1e999]", "[1", ""] {
        refusal(json);
    }
    let deep = "[".repeat(20) + &"]".repeat(20);
    assert!(refusal(&deep).contains("nested more than 16 deep"));
}

#[test]
fn numbers_narrow_to_the_model_s_type_or_say_why_not() {
    assert_eq!(narrow("[1, -2.5]", Datatype::Fp32), Ok(Data::F32(vec![1.0, -2.5])));
    assert_eq!(narrow("[1, 2.0]", Datatype::Int64), Ok(Data::I32(vec![1, 2])));
    assert_eq!(narrow("[0, 255]", Datatype::Uint8), Ok(Data::U8(vec![0, 255])));
    assert_eq!(narrow("[-128]", Datatype::Int8), Ok(Data::I8(vec![-128])));
    assert_eq!(narrow("[true, 0]", Datatype::Bool), Ok(Data::I32(vec![1, 0])));
    let check = |json, datatype, words: &str| {
        let sentence = narrow(json, datatype).expect_err(json);
        assert!(sentence.contains(words), "{sentence}");
    };
    check("[0.5]", Datatype::Int32, "0.5 is not a whole number");
    check("[3000000000]", Datatype::Int64, "3000000000 is outside");
    check("[256]", Datatype::Uint8, "256 is outside 0..255");
    check("[2]", Datatype::Bool, "2 is outside 0..1");
    check("[1e39]", Datatype::Fp32, "1e39 is too large for FP32");
    check("[true]", Datatype::Fp32, "true and false are not FP32 values");
}
