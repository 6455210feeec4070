//! The handler that the command line names: a stock handler, which is not part of the archive, or a
//! file, optionally with a function or class after a colon.

use std::path::{Path, PathBuf};

use crate::flags::archive::HandlerRuntime;

/// Handlers that come with the server.
const STOCK: [&str; 8] = [
    "base_handler",
    "text_classifier",
    "image_classifier",
    "object_detector",
    "image_segmenter",
    "dali_image_classifier",
    "vllm_handler",
    "trt_llm_handler",
];

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
    pub fn parse(text: &str, runtime: HandlerRuntime) -> Self {
        let (stock, endings): (&[&str], &[&str]) = match runtime {
            HandlerRuntime::Python | HandlerRuntime::Python3 => (&STOCK, &["py"]),
            HandlerRuntime::Lsp => (&STOCK_LSP, &["so", "dylib"]),
        };
        let path = text.split(':').next().unwrap_or(text);
        let file = (!stock.contains(&path)).then(|| file(path, endings));
        let name = text.rsplit('/').next().unwrap_or(text).to_owned();
        Self { name, file }
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
        assert_eq!(ArchivedHandler::parse(text, runtime), expected, "{text}");
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
