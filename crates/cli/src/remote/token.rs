//! The key that the server wants: from a flag, a key file, a variable, or the key file of the current
//! directory, in this order.
//!
//! The last one is only for a server on this machine, since it is the key of one; no other host gets
//! it without being asked for.

use std::path::Path;

use serde_json::Value;

use super::server_api::ServerApi;
use crate::env::Env;
use crate::failure::Failure;
use crate::flags::remote::ServerFlags;
use crate::key_file::KEY_FILE;

/// The key, if there is one.
pub fn find(
    api: ServerApi,
    flags: &ServerFlags,
    local: bool,
    env: &Env,
) -> Result<Option<String>, Failure> {
    if let Some(token) = &flags.token {
        return Ok(Some(token.clone()));
    }
    if let Some(file) = &flags.key_file {
        return read(file, api).map(Some);
    }
    if let Some(token) = env.text("JITNEY_TOKEN").filter(|token| !token.is_empty()) {
        return Ok(Some(token.to_owned()));
    }
    let here = Path::new(KEY_FILE);
    // Who did not ask for the file is not told that it cannot be read.
    Ok(if local && here.is_file() { read(here, api).ok() } else { None })
}

fn read(file: &Path, api: ServerApi) -> Result<String, Failure> {
    let text =
        std::fs::read_to_string(file).map_err(|error| Failure::file("read", file, &error))?;
    let key = serde_json::from_str::<Value>(&text)
        .ok()
        .and_then(|keys| Some(keys.get(api.word())?.get("key")?.as_str()?.to_owned()));
    key.ok_or_else(|| {
        Failure::usage(format!("{} holds no {} key", file.display(), api.word())).hint(
            "a server with tokens writes key_file.json to the directory that it was started in",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_wins_over_a_variable_and_a_file_has_the_management_key() {
        let env = Env::from([("JITNEY_TOKEN", "of the environment")]);
        let flags = ServerFlags { token: Some("of the flag".to_owned()), ..ServerFlags::default() };
        let found =
            |flags: &ServerFlags| find(ServerApi::Management, flags, false, &env).expect("reads");
        assert_eq!(found(&flags).as_deref(), Some("of the flag"));
        assert_eq!(found(&ServerFlags::default()).as_deref(), Some("of the environment"));
        let file = tempfile::NamedTempFile::new().expect("file");
        let keys = r#"{"management": {"key": "of the file"}, "inference": {"key": "other"}}"#;
        std::fs::write(file.path(), keys).expect("writes");
        let flags = ServerFlags { key_file: Some(file.path().into()), ..ServerFlags::default() };
        assert_eq!(found(&flags).as_deref(), Some("of the file"));
        let of_predictions = find(ServerApi::Inference, &flags, false, &env).expect("reads");
        assert_eq!(of_predictions.as_deref(), Some("other"));
        std::fs::write(file.path(), "{}").expect("writes");
        assert!(find(ServerApi::Management, &flags, false, &env).is_err());
    }
}
