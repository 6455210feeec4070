//! The headers of sequences under names of the operator's own. In TorchServe the server and the
//! handlers take these names from different places and can disagree; here one key sets both.

use jitney_engine::call::SequenceHeaders;
use jitney_settings::torchserve::{SEQUENCE_END_HEADER, SEQUENCE_ID_HEADER, SEQUENCE_START_HEADER};
use jitney_settings::{Setting, SettingSource, Values};

use crate::failure::Failure;

/// Where handlers read the names, by the setting.
const VARIABLES: [(&Setting, &str); 3] = [
    (&SEQUENCE_ID_HEADER, "TS_REQUEST_SEQUENCE_ID"),
    (&SEQUENCE_START_HEADER, "TS_REQUEST_SEQUENCE_START"),
    (&SEQUENCE_END_HEADER, "TS_REQUEST_SEQUENCE_END"),
];

/// The names that the configuration gives, else TorchServe's.
pub fn headers(values: &Values) -> Result<SequenceHeaders, Failure> {
    let name = |setting: &Setting| {
        let name: String = values.read(setting).unwrap_or_default();
        if is_header(&name) {
            return Ok(name);
        }
        Err(Failure::failed(format!("{}={name}: not the name of a header", setting.name)))
    };
    Ok(SequenceHeaders {
        id: name(&SEQUENCE_ID_HEADER)?,
        start: name(&SEQUENCE_START_HEADER)?,
        end: name(&SEQUENCE_END_HEADER)?,
    })
}

/// What workers are told, as far as the configuration says anything.
pub fn variables(values: &Values) -> impl Iterator<Item = (&'static str, String)> {
    VARIABLES.into_iter().filter_map(|(setting, variable)| {
        let is_set = values.source(setting) != SettingSource::Default;
        values.show(setting).filter(|_| is_set).map(|name| (variable, name))
    })
}

/// HTTP's own rule for names.
fn is_header(name: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(sound)
}
