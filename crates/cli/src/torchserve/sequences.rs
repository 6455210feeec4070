//! The headers of sequences under names of the operator's own. In TorchServe the server and the
//! handlers take these names from different places and can disagree; here one key sets both.

use jitney_engine::call::SequenceHeaders;

use super::values::Values;
use crate::failure::Failure;

const ID: &str = "ts_header_key_sequence_id";
const START: &str = "ts_header_key_sequence_start";
const END: &str = "ts_header_key_sequence_end";

/// Where handlers read the names, by the key that sets them.
const VARIABLES: [(&str, &str); 3] = [
    (ID, "TS_REQUEST_SEQUENCE_ID"),
    (START, "TS_REQUEST_SEQUENCE_START"),
    (END, "TS_REQUEST_SEQUENCE_END"),
];

/// The names that the configuration gives, else TorchServe's.
pub fn headers(values: &Values) -> Result<SequenceHeaders, Failure> {
    let usual = SequenceHeaders::default();
    let name = |key: &str, usual: String| match values.text(key).map(str::trim) {
        None => Ok(usual),
        Some(name) if is_header(name) => Ok(name.to_owned()),
        Some(name) => Err(Failure::failed(format!("{key}={name}: not the name of a header"))),
    };
    Ok(SequenceHeaders {
        id: name(ID, usual.id)?,
        start: name(START, usual.start)?,
        end: name(END, usual.end)?,
    })
}

/// What workers are told, as far as the configuration says anything.
pub fn variables(values: &Values) -> impl Iterator<Item = (&'static str, String)> {
    VARIABLES.into_iter().filter_map(|(key, variable)| {
        values.text(key).map(|name| (variable, name.trim().to_owned()))
    })
}

/// HTTP's own rule for names.
fn is_header(name: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(sound)
}
