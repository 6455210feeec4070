//! How a text becomes the tensors of a language model: tokens by the tokenizer.json beside the card, cut
//! to the longest that the model takes, and filled up to the longest of those that run together.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use jitney_engine::local::{Dim, Signature, TensorSpec};
use jitney_engine::tensors::Datatype;
use serde::Deserialize;
use tokenizers::{Encoding, Error, Tokenizer, TruncationParams};

/// The keys of the card's section.
pub(in super::super) const TEXT_KEYS: &[&str] = &["tokenizer", "max_length"];

/// The card's `text: {...}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TextRule {
    /// The file beside the card.
    pub(in super::super) tokenizer: PathBuf,
    max_length: Option<usize>,
}

/// What an input of the model takes of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenRole {
    Ids,
    Mask,
    Types,
}

impl TokenRole {
    /// By the input's name, as exporters give it.
    fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        if name.contains("mask") {
            Self::Mask
        } else if name.contains("type") || name.contains("segment") {
            Self::Types
        } else {
            Self::Ids
        }
    }

    fn numbers(self, encoding: &Encoding) -> &[u32] {
        match self {
            Self::Ids => encoding.get_ids(),
            Self::Mask => encoding.get_attention_mask(),
            Self::Types => encoding.get_type_ids(),
        }
    }
}

/// A rule that was fitted to a model.
#[derive(Clone, Debug)]
pub(in super::super) struct TextPreparation {
    rule: TextRule,
    /// Per input of the model.
    inputs: Vec<(TokenRole, Datatype)>,
    /// How long every text becomes; `None` where it is as long as the longest beside it.
    length: Option<usize>,
    loaded: Arc<OnceLock<LoadedTokenizer>>,
}

#[derive(Debug)]
struct LoadedTokenizer {
    tokenizer: Tokenizer,
    filler: u32,
}

impl PartialEq for TextPreparation {
    fn eq(&self, other: &Self) -> bool {
        self.rule == other.rule && self.inputs == other.inputs && self.length == other.length
    }
}

impl TextRule {
    /// The rule with what the model says; a sentence where the two do not fit.
    pub(in super::super) fn fit(&self, signature: &Signature) -> Result<TextPreparation, String> {
        let mut length = None;
        let mut roles = BTreeMap::new();
        let mut inputs = Vec::new();
        for spec in &signature.inputs {
            let role = TokenRole::of(&spec.name);
            let whole = matches!(spec.datatype, Datatype::Int64 | Datatype::Int32);
            match spec.shape.as_deref() {
                None if whole => {}
                Some([_, Dim::Open(_)]) if whole => {}
                Some([_, Dim::Fixed(size)]) if whole && length.is_none_or(|it| it == *size) => {
                    length = Some(*size);
                }
                _ => return Err(unfit(spec)),
            }
            if let Some(other) = roles.insert(role as u8, &spec.name) {
                return Err(format!(
                    "text: inputs {other:?} and {:?} would get the same: their names tell no mask and no \
                     token types",
                    spec.name
                ));
            }
            inputs.push((role, spec.datatype));
        }
        if !roles.contains_key(&(TokenRole::Ids as u8)) {
            return Err("text: the model has no input for the ids of tokens".to_owned());
        }
        if length.is_some_and(|length| self.max_length.is_some_and(|most| most > length)) {
            return Err(format!("text.max_length: the model takes {} tokens", length.unwrap_or(0)));
        }
        if length.is_none() && !roles.contains_key(&(TokenRole::Mask as u8)) {
            // What a text is filled up with would change its answer with its neighbours.
            length = Some(self.max_length.ok_or(
                "text.max_length: the model takes no mask, so that every text is filled up to one \
                 length; say which",
            )?);
        }
        let (rule, loaded) = (self.clone(), Arc::default());
        Ok(TextPreparation { rule, inputs, length, loaded })
    }
}

fn unfit(spec: &TensorSpec) -> String {
    format!("text makes INT64 or INT32 of shape [n, length], input {:?} takes {spec}", spec.name)
}

impl TextPreparation {
    /// The file beside the card.
    pub(in super::super) fn tokenizer(&self) -> &Path {
        &self.rule.tokenizer
    }

    /// Reads the tokenizer; a sentence if that cannot be done.
    pub(in super::super) fn load(&self, json: &[u8]) -> Result<(), String> {
        let named = |reason: String| format!("text.tokenizer: {:?}: {reason}", self.rule.tokenizer);
        let json = std::str::from_utf8(json).map_err(|error| named(error.to_string()))?;
        // Not `from_bytes`, whose reader is generic: it would be compiled here once more.
        let mut tokenizer: Tokenizer =
            json.parse().map_err(|error: Error| named(error.to_string()))?;
        let padding = tokenizer.get_padding().map(|padding| padding.pad_id);
        let filler = padding.or_else(|| {
            ["[PAD]", "<pad>", "<|endoftext|>"].iter().find_map(|it| tokenizer.token_to_id(it))
        });
        tokenizer.with_padding(None);
        let own = tokenizer.get_truncation().cloned();
        let most = self.rule.max_length.or(own.as_ref().map(|it| it.max_length));
        let most = match (most, self.length) {
            (Some(most), Some(length)) => Some(most.min(length)),
            (most, length) => most.or(length),
        };
        let truncation = most.map(|max_length| TruncationParams {
            max_length,
            stride: 0,
            ..own.unwrap_or_default()
        });
        tokenizer.with_truncation(truncation).map_err(|error| named(error.to_string()))?;
        let loaded = LoadedTokenizer { tokenizer, filler: filler.unwrap_or(0) };
        // A second load changes nothing.
        let _ = self.loaded.set(loaded);
        Ok(())
    }

    /// The tokens of a text.
    pub(in super::super) fn tokens(&self, body: &[u8]) -> Result<Encoding, String> {
        let loaded = self.loaded.get().ok_or("the tokenizer is not loaded")?;
        let text = std::str::from_utf8(body).map_err(|error| {
            format!("the text is not UTF-8: byte {} is wrong", error.valid_up_to())
        })?;
        let encoding = loaded.tokenizer.encode_fast(text, true);
        let encoding =
            encoding.map_err(|error| format!("the text cannot be tokenized: {error}"))?;
        if encoding.is_empty() { Err("the text has no tokens".to_owned()) } else { Ok(encoding) }
    }

    /// How long the texts become that run together.
    pub(in super::super) fn length<'a>(&self, tokens: impl Iterator<Item = &'a Encoding>) -> usize {
        self.length.unwrap_or_else(|| tokens.map(Encoding::len).max().unwrap_or(0))
    }

    /// The raw elements of a text for each input, filled up to a length.
    pub(in super::super) fn elements(
        &self,
        encoding: &Encoding,
        length: usize,
    ) -> Vec<(Datatype, Vec<u8>)> {
        let filler = self.loaded.get().map_or(0, |loaded| loaded.filler);
        let input = |(role, datatype): &(TokenRole, Datatype)| {
            let fill = if *role == TokenRole::Ids { filler } else { 0 };
            let numbers = role.numbers(encoding).iter().copied();
            let numbers = numbers.chain(std::iter::repeat(fill)).take(length);
            let elements = if *datatype == Datatype::Int32 {
                numbers.flat_map(u32::to_le_bytes).collect()
            } else {
                numbers.flat_map(|number| u64::from(number).to_le_bytes()).collect()
            };
            (*datatype, elements)
        };
        self.inputs.iter().map(input).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words and pieces of words, as BERT has them.
    const TOKENIZER: &str = r###"{
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [
            {"id": 0, "content": "[PAD]", "single_word": false, "lstrip": false, "rstrip": false,
             "normalized": false, "special": true}
        ],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                               "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100,
                  "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "good": 4, "film": 5,
                            "##s": 6, "bad": 7}}
    }"###;

    fn fitted(
        inputs: &[(&str, Datatype, Option<usize>)],
        yaml: &str,
    ) -> Result<TextPreparation, String> {
        let rule: TextRule = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
        let spec = |(name, datatype, length): &(&str, Datatype, Option<usize>)| {
            let length = length.map_or_else(|| Dim::Open("length".to_owned()), Dim::Fixed);
            let shape = Some(vec![Dim::Open("n".to_owned()), length]);
            TensorSpec { name: (*name).to_owned(), datatype: *datatype, shape }
        };
        rule.fit(&Signature { inputs: inputs.iter().map(spec).collect(), outputs: Vec::new() })
    }

    fn numbers(elements: &[u8]) -> Vec<u64> {
        elements.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
    }

    const BERT: [(&str, Datatype, Option<usize>); 3] = [
        ("input_ids", Datatype::Int64, None),
        ("attention_mask", Datatype::Int64, None),
        ("token_type_ids", Datatype::Int64, None),
    ];

    #[test]
    fn texts_are_cut_and_filled_up_to_the_longest() {
        let text = fitted(&BERT, "{tokenizer: t.json, max_length: 5}").expect("fits");
        text.load(TOKENIZER.as_bytes()).expect("a tokenizer");
        let tokens = ["Good films", "bad", "good bad good bad"]
            .map(|it| text.tokens(it.as_bytes()).expect(it));
        let length = text.length(tokens.iter());
        assert_eq!(length, 5);
        let rows: Vec<Vec<Vec<u64>>> = tokens
            .iter()
            .map(|it| text.elements(it, length).iter().map(|(_, it)| numbers(it)).collect())
            .collect();
        assert_eq!(rows[0], [[2, 4, 5, 6, 3], [1; 5], [0; 5]]);
        assert_eq!(rows[1], [[2, 7, 3, 0, 0], [1, 1, 1, 0, 0], [0; 5]]);
        assert_eq!(rows[2][0], [2, 4, 7, 4, 3]);
        assert_eq!(text.length(tokens[1..2].iter()), 3, "alone it needs no filling");
        assert!(text.tokens(b"\xff").expect_err("no text").contains("not UTF-8"));
    }

    #[test]
    fn a_model_of_one_length_or_without_a_mask_gets_that_length() {
        let only_ids = [("ids", Datatype::Int32, Some(4))];
        let text = fitted(&only_ids, "{tokenizer: t.json}").expect("fits");
        text.load(TOKENIZER.as_bytes()).expect("a tokenizer");
        let tokens = text.tokens(b"bad").expect("tokens");
        assert_eq!(text.length([&tokens].into_iter()), 4);
        assert_eq!(text.elements(&tokens, 4)[0].1.len(), 16);
        let open = [("ids", Datatype::Int64, None)];
        let told = fitted(&open, "{tokenizer: t.json}").expect_err("no length");
        assert!(told.contains("say which"), "{told}");
        let text = fitted(&open, "{tokenizer: t.json, max_length: 9}").expect("fits");
        assert_eq!(text.length([&tokens].into_iter()), 9);
    }

    #[test]
    fn a_rule_that_does_not_fit_the_model_is_rejected() {
        let check = |inputs: &[(&str, Datatype, Option<usize>)], expected: &str| {
            let told = fitted(inputs, "{tokenizer: t.json, max_length: 8}").expect_err(expected);
            assert!(told.contains(expected), "{told}");
        };
        check(&[("x", Datatype::Fp32, None)], "input \"x\" takes FP32");
        check(&[("a", Datatype::Int64, None), ("b", Datatype::Int64, None)], "the same");
        check(&[("mask", Datatype::Int64, None)], "no input for the ids");
        check(&[("ids", Datatype::Int64, Some(4))], "the model takes 4 tokens");
        let text = fitted(&BERT, "{tokenizer: t.json}").expect("fits");
        assert!(text.load(b"{}").expect_err("no tokenizer").contains("text.tokenizer: \"t.json\""));
    }
}
