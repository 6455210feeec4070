//! Which model a request asks for, of those that workers load when they need them: the batcher's number for its id.

use std::hash::{BuildHasher, RandomState};

use crate::call::HeaderBlock;

/// The headers that name the model: Ray's name, and the same for proxies that let no underscores through.
const NAMES: [&str; 2] = ["serve_multiplexed_model_id", "serve-multiplexed-model-id"];

/// How ids become numbers. The hash has a key of its own, so that no client can make two ids meet.
#[derive(Default)]
pub(crate) struct ModelIds(RandomState);

impl ModelIds {
    /// The number of the model that these headers name; 0 if they name none.
    pub(crate) fn number_of(&self, headers: &HeaderBlock) -> u64 {
        let named = |name: &[u8]| NAMES.iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes()));
        let id = headers.iter().find(|(name, id)| named(name) && !id.is_empty());
        id.map_or(0, |(_, id)| self.0.hash_one(id).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_id_has_the_same_number_under_both_names() {
        let ids = ModelIds::default();
        let number = |name, id: &str| {
            let mut headers = HeaderBlock::new();
            headers.push("accept", b"*/*");
            headers.push(name, id.as_bytes());
            ids.number_of(&headers)
        };
        let a = number("Serve_Multiplexed_Model_Id", "a");
        assert_eq!(number("serve-multiplexed-model-id", "a"), a);
        assert!(a != 0 && a != number("serve-multiplexed-model-id", "b"));
        assert_eq!([number("serve-multiplexed-model-id", ""), number("x-model", "a")], [0, 0]);
    }
}
