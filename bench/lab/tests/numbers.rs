//! The page of the policy's numbers is as the declarations are.

use std::fs;
use std::path::Path;

use jitney_lab::numbers::{PAGE, declared, row, sources};

#[test]
fn every_number_has_a_meaning_an_origin_and_its_row_on_the_page() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let page = fs::read_to_string(root.join(PAGE)).expect("the page");
    let numbers = declared(&sources(root).expect("the policy"));
    for number in &numbers {
        let key = number.key();
        assert!(!number.meaning.is_empty() && !number.origin.is_empty(), "{key}: no comment");
        assert!(page.contains(&row(number)), "{key}: make the page anew with example numbers");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, numbers.len(), "the page has numbers that are gone");
}
