//! The handler that the command line names: a stock handler, which is not part of the archive, or a
//! file, optionally with a function or class after a colon.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::flags::archive::HandlerRuntime;

/// Handlers that come with the server.
const STOCK: [&str; 7] = [
    "base_handler",
    "text_classifier",
    "image_classifier",
    "object_detector",
    "image_segmenter",
    "dali_image_classifier",
    "vllm_handler",
];

/// A stock handler of TorchServe that cannot be loaded here, and what to do.
const ABSENT: &str = "trt_llm_handler";
const INSTEAD: &str = "trt_llm_handler is not part of Jitney. Serve the model by vLLM (--handler vllm_handler), or with \
    NVIDIA's trtllm-serve, or bring a file of your own that runs the engine: --handler my_handler.py, with \
    asyncCommunication: true in model-config.yaml";

/// Handlers that come with the C++ backend.
const STOCK_LSP: [&str; 2] = ["BaseHandler", "TorchScriptHandler"];

/// A handler.
#[derive(Debug, PartialEq, Eq)]
pub struct ArchivedHandler {
    /// Its name in the manifest: the last path element.
    pub name: String,
    /// The file that goes into the archive.
    pub file: Option<PathBuf>,
}

impl ArchivedHandler {
    /// Parses the value of `--handler`.
    pub fn parse(text: &str, runtime: HandlerRuntime) -> Result<Self, Failure> {
        let (stock, endings): (&[&str], &[&str]) = match runtime {
            HandlerRuntime::Python | HandlerRuntime::Python3 => (&STOCK, &["py"]),
            HandlerRuntime::Lsp => (&STOCK_LSP, &["so", "dylib"]),
        };
        let path = text.split(':').next().unwrap_or(text);
        if path == ABSENT {
            return Err(Failure::failed(INSTEAD));
        }
        let file = (!stock.contains(&path)).then(|| file(path, endings));
        let name = text.rsplit('/').next().unwrap_or(text).to_owned();
        Ok(Self { name, file })
    }
}

/// The path itself if it has a handler's extension; else the first existing file with one.
fn file(path: &str, endings: &[&str]) -> PathBuf {
    let ending = Path::new(path).extension().and_then(|ending| ending.to_str());
    if ending.is_some_and(|ending| endings.contains(&ending)) {
        return PathBuf::from(path);
    }
    let mut candidates = endings.iter().map(|ending| PathBuf::from(format!("{path}.{ending}")));
    let first = candidates.next();
    let found = first.iter().cloned().chain(candidates).find(|file| file.is_file());
    found.or(first).unwrap_or_else(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, runtime: HandlerRuntime, name: &str, file: Option<&str>) {
        let expected = ArchivedHandler { name: name.to_owned(), file: file.map(PathBuf::from) };
        let found = ArchivedHandler::parse(text, runtime).expect("a handler");
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_handler_that_could_not_be_loaded_is_no_archive() {
        for text in ["trt_llm_handler", "trt_llm_handler:handle"] {
            let failure = ArchivedHandler::parse(text, HandlerRuntime::Python);
            assert!(failure.is_err_and(|it| it.to_string().contains("--handler vllm_handler")));
        }
        check(
            "trt_llm_handler.py",
            HandlerRuntime::Python,
            "trt_llm_handler.py",
            Some("trt_llm_handler.py"),
        );
    }

    #[test]
    fn files_functions_and_stock_handlers_are_distinguished() {
        use HandlerRuntime::{Lsp, Python, Python3};
        check("handler.py", Python, "handler.py", Some("handler.py"));
        check("a/b/handler.py", Python3, "handler.py", Some("a/b/handler.py"));
        check("a/handler:serve", Python, "handler:serve", Some("a/handler.py"));
        check("handler.v2", Python, "handler.v2", Some("handler.v2.py"));
        check("image_classifier", Python, "image_classifier", None);
        check("BaseHandler", Python, "BaseHandler", Some("BaseHandler.py"));
        check("TorchScriptHandler", Lsp, "TorchScriptHandler", None);
        check("x/libm.dylib:H", Lsp, "libm.dylib:H", Some("x/libm.dylib"));
        check("x/libm:H", Lsp, "libm:H", Some("x/libm.so"));
    }
}
