//! What must hold for every request whose size is read, whatever its bytes. `fuzz/` looks for bytes for
//! which it does not; the tests try those of `fuzz/corpus` again.

use std::borrow::Cow;
use std::sync::LazyLock;

use bytes::Bytes;

use super::{RequestSize, SizeReader, open_inference};
use crate::call::{CALL_PARAMETER, CallRoute, HeaderBlock, Input, Parameter};

static READERS: LazyLock<Vec<SizeReader>> = LazyLock::new(|| {
    let forms = ["array", "frame", "text", "bytes", "json", "any"];
    let reader = |form: &str| {
        let sizes = serde_json::json!({
            "params": [
                {"name": "x", "form": form, "required": true, "rows": true},
                {"name": "y", "form": "array", "rows": true},
            ],
            "cost": [{"dim": {"param": 0, "dim": -1}}, {"times": 3}, {"over": 2}],
            "bucket": [{"dim": {"param": 1, "dim": 1}}],
        });
        SizeReader::new(serde_json::from_value(sizes).expect("sizes"))
    };
    forms.into_iter().map(reader).collect()
});

/// Reads the size of a request with this body, or with these arguments, for an endpoint that the first
/// byte chooses. No count is larger than the bytes can hold, unless an array's head says so, and reading
/// twice says the same.
pub fn request_sizes(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else { return };
    let reader = &READERS[usize::from(first % 6)];
    let body = Bytes::copy_from_slice(body);
    for (name, content_type) in
        [("body", "application/json"), ("body", ""), ("x", ""), (CALL_PARAMETER, "")]
    {
        let input = input(name, content_type, body.clone());
        let size = reader.read(&input);
        assert_eq!(size, reader.read(&input));
        let RequestSize { cost, bucket, .. } = size;
        assert!(cost.is_some_and(|cost| cost > 0) && bucket.is_some());
        let of_json =
            content_type == "application/json" && !body.starts_with(super::array_file::NPZ);
        if of_json && super::array_file::npy(&body, body.len()).is_none() {
            assert!(size.items.is_none_or(|items| items as usize <= body.len()));
        }
        open_inference(&input);
    }
}

fn input(name: &'static str, content_type: &'static str, value: Bytes) -> Input {
    let content_type = Cow::Borrowed(content_type);
    let parameters =
        vec![Parameter { name: Cow::Borrowed(name), content_type, value: value.into() }];
    let (id, headers, route) = (String::new(), HeaderBlock::default(), CallRoute::default());
    Input { id, headers, route, parameters, tensors: None }
}
