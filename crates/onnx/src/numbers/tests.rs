//! What reads as numbers, what does not, and why it is rejected.

use super::*;

fn shape(json: &str) -> Vec<usize> {
    serde_json::from_str::<Numbers>(json).expect(json).shape
}

fn error(json: &str) -> String {
    serde_json::from_str::<Numbers>(json).expect_err(json).to_string()
}

fn narrow(json: &str, datatype: Datatype) -> Result<Vec<u8>, String> {
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
fn ragged_nests_are_rejected_wherever_the_unevenness_is() {
    for json in ["[[1], [2, 3]]", "[[1, 2], [3]]", "[1, [2]]", "[[1], 2]", "[[], [1]]", "[[], 1]"] {
        assert!(error(json).contains("ragged"), "{json}: {}", error(json));
    }
    let expected = "the lists are ragged: one of 2 stands beside one of 1 at line 1 column 12";
    assert_eq!(error("[[1], [2, 3]]"), expected);
}

#[test]
fn what_is_not_a_number_is_rejected() {
    for json in [
        "[null]",
        "[{}]",
        "[1, \"1\"]",
        "[\"1\", 1]",
        "[\"1\", [\"1\"]]",
        "[NaN]",
        "[Infinity]",
        "[1e999]",
        "[1",
        "",
    ] {
        error(json);
    }
    let deep = "[".repeat(20) + &"]".repeat(20);
    assert!(error(&deep).contains("nested more than 16 deep"));
}

#[test]
fn numbers_narrow_to_the_model_s_type_or_say_why_not() {
    let raw = |numbers: &[f32]| bytemuck::cast_slice(numbers).to_vec();
    assert_eq!(narrow("[1, -2.5]", Datatype::Fp32), Ok(raw(&[1.0, -2.5])));
    let wide = [1i64, 2, i64::MAX, i64::MIN];
    let text = "[1, 2.0, 9223372036854775807, -9223372036854775808]";
    assert_eq!(narrow(text, Datatype::Int64), Ok(bytemuck::cast_slice(&wide).to_vec()));
    assert_eq!(narrow("[0, 255]", Datatype::Uint8), Ok(vec![0, 255]));
    assert_eq!(narrow("[-128]", Datatype::Int8), Ok(vec![0x80]));
    assert_eq!(narrow("[true, 0]", Datatype::Bool), Ok(vec![1, 0]));
    assert_eq!(narrow("[1]", Datatype::Fp16), Ok(vec![0, 0x3c]));
    assert_eq!(narrow(r#"[["hi"], [""]]"#, Datatype::Bytes), Ok(b"\x02\0\0\0hi\0\0\0\0".to_vec()));
    let check = |json, datatype, words: &str| {
        let sentence = narrow(json, datatype).expect_err(json);
        assert!(sentence.contains(words), "{sentence}");
    };
    check("[0.5]", Datatype::Int32, "0.5 is not a whole number");
    check("[3000000000]", Datatype::Int32, "3000000000 is outside");
    check("[18446744073709551615]", Datatype::Int64, "18446744073709551615 is outside");
    check("[1]", Datatype::Bytes, "numbers are not BYTES values");
    check(r#"["1"]"#, Datatype::Fp32, "texts are not FP32 values");
    check("[70000]", Datatype::Fp16, "7e4 is too large for FP16");
    check("[256]", Datatype::Uint8, "256 is outside 0..255");
    check("[2]", Datatype::Bool, "2 is outside 0..1");
    check("[1e39]", Datatype::Fp32, "1e39 is too large for FP32");
    check("[true]", Datatype::Fp32, "true and false are not FP32 values");
}
