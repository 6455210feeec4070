//! Stock handlers that are definitions: an archive names one as TorchServe's do, and brings no description of its API,
//! which is known here. So its paths are the server's to route, and its requests reach it as they came.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::endpoint_api::{HttpPaths, HttpRoute};

/// TorchServe's handler for language models.
const VLLM: &str = "vllm_handler";
/// What stands in its place, as a worker finds it.
const VLLM_OBJECT: &str = "ts.torch_handler.vllm_handler:VLLMHandler";
/// The paths of vLLM's application that are passed on; those of `AT_ROOT` without the model's name, too.
const VLLM_PATHS: [&str; 7] = [
    "v1/chat/completions",
    "v1/completions",
    "v1/responses",
    "v1/models",
    "v1/embeddings",
    "tokenize",
    "detokenize",
];
const AT_ROOT: usize = 3;
/// Seconds that loading may take where the archive does not say; TorchServe's launcher writes the same.
const STARTUP_SECONDS: u32 = 1200;

/// The paths of a model whose handler is a stock definition, all of whose endpoints are raw; its settings get what the
/// worker has to know.
pub(super) fn recognise(
    handler: &str,
    dir: &Path,
    yaml: &mut Map<String, Value>,
) -> Option<HttpPaths> {
    let handler = handler.split(':').next()?;
    if handler.strip_suffix(".py").unwrap_or(handler) != VLLM
        || dir.join(format!("{VLLM}.py")).is_file()
    {
        return None;
    }
    complete(yaml);
    let routes = VLLM_PATHS[..AT_ROOT].iter().map(|path| HttpRoute {
        path: format!("/{path}"),
        methods: vec!["POST".to_owned()],
        endpoint: (*path).to_owned(),
        shared: true,
        ..HttpRoute::default()
    });
    let raw = VLLM_PATHS.map(str::to_owned).into();
    Some(HttpPaths { raw, routes: routes.collect(), mount: None })
}

/// One process drives all GPUs of a worker, and sees no others.
fn complete(yaml: &mut Map<String, Value>) {
    let engine = yaml.get("handler").and_then(|handler| handler.get("vllm_engine_config"));
    let size = |key| engine.and_then(|it| it.get(key)).and_then(Value::as_u64).unwrap_or(1);
    let gpus = size("tensor_parallel_size").saturating_mul(size("pipeline_parallel_size"));
    if gpus > 1 && !yaml.contains_key("parallelLevel") {
        yaml.insert("parallelLevel".to_owned(), gpus.into());
    }
    if yaml.contains_key("parallelLevel") {
        yaml.insert("parallelType".to_owned(), "custom".into());
    }
    yaml.insert("asyncCommunication".to_owned(), true.into());
    yaml.entry("startupTimeout").or_insert_with(|| STARTUP_SECONDS.into());
    let section = yaml.entry("jitney").or_insert_with(|| json!({}));
    if let Some(section) = section.as_object_mut() {
        section.insert("object".to_owned(), VLLM_OBJECT.into());
        section.insert("own_gpus".to_owned(), true.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(handler: &str, yaml: &Value) -> Option<(HttpPaths, Value)> {
        let dir = tempfile::tempdir().expect("directory");
        let mut yaml = yaml.as_object().cloned().unwrap_or_default();
        let paths = recognise(handler, dir.path(), &mut yaml)?;
        Some((paths, Value::Object(yaml)))
    }

    #[test]
    fn an_archive_for_vllm_has_openais_paths() {
        let (paths, yaml) =
            settings("vllm_handler", &json!({"minWorkers": 1})).expect("a definition");
        let routes: Vec<_> = paths.routes.iter().map(|route| route.path.as_str()).collect();
        assert_eq!(routes, ["/v1/chat/completions", "/v1/completions", "/v1/responses"]);
        assert!(paths.routes.iter().all(|route| paths.raw.contains(&route.endpoint)));
        assert_eq!(yaml["jitney"]["object"], VLLM_OBJECT);
        assert_eq!((&yaml["asyncCommunication"], yaml.get("parallelType")), (&json!(true), None));
    }

    #[test]
    fn one_process_gets_the_gpus_that_the_engine_asks_for() {
        let engine = json!({"vllm_engine_config": {"tensor_parallel_size": 4}});
        let (_, yaml) = settings("vllm_handler:handle", &json!({"handler": engine})).expect("one");
        assert_eq!((&yaml["parallelLevel"], &yaml["parallelType"]), (&json!(4), &json!("custom")));
        let (_, yaml) = settings("vllm_handler.py", &json!({"parallelLevel": 2})).expect("one");
        assert_eq!((&yaml["parallelLevel"], &yaml["parallelType"]), (&json!(2), &json!("custom")));
    }

    #[test]
    fn other_handlers_and_a_file_of_the_archive_itself_are_left_alone() {
        assert!(settings("image_classifier", &json!({})).is_none());
        let dir = tempfile::tempdir().expect("directory");
        std::fs::write(dir.path().join("vllm_handler.py"), "").expect("file");
        assert!(recognise(VLLM, dir.path(), &mut Map::new()).is_none());
    }
}
