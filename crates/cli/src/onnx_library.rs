//! Where ONNX Runtime's library may be on this machine, which workers are told.

use std::path::{Path, PathBuf};

use jitney_onnx::LibrarySearch;
use serde_json::{Map, Value, json};

use crate::env::Env;

/// Whether this is the static build. Only this crate is compiled for it, so only here it can be seen.
pub const IS_STATIC: bool = cfg!(target_feature = "crt-static");

/// What workers are told.
pub fn options(interpreter: &Path, env: &Env) -> Map<String, Value> {
    Map::from_iter([("search".to_owned(), json!(search(interpreter, env)))])
}

/// Where the library may be.
pub fn search(interpreter: &Path, env: &Env) -> LibrarySearch {
    let program = std::env::current_exe().ok();
    LibrarySearch {
        setting: None,
        variable: env.path("ORT_DYLIB_PATH"),
        prefix: program.and_then(|program| Some(program.parent()?.parent()?.to_owned())),
        python: Some(interpreter.to_owned()),
        cache: cache(env),
        in_static_program: IS_STATIC,
    }
}

/// The directory that `jitney onnx install` fills, and where servers keep what is to outlive them.
pub fn cache(env: &Env) -> Option<PathBuf> {
    let cache = env.path("XDG_CACHE_HOME").filter(|cache| cache.is_absolute());
    let cache = cache.or_else(|| env.path("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("jitney"))
}
