//! Which models to load at start-up: `all`, or a list of `file` and `name=file`.

use std::path::Path;

use jitney_engine::store::models_in;

use crate::plan::Startup;

/// Reads `--models` or `load_models`; `all` looks into the store.
pub fn parse(text: &str, store: &Path) -> Vec<Startup> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("none") {
        return Vec::new();
    }
    if text.eq_ignore_ascii_case("all") {
        return models_in(store).iter().map(|name| Startup::unnamed(name)).collect();
    }
    text.split(',').map(str::trim).filter(|one| !one.is_empty()).map(one).collect()
}

/// `name=file`, `file` or a URL; a URL's query may hold a `=` of its own.
fn one(text: &str) -> Startup {
    match text.split_once('=') {
        Some((name, url)) if !name.contains(['/', ':', '?']) => {
            Startup::named(name.trim(), url.trim())
        }
        _ => Startup::unnamed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(Option<&str>, &str)]) {
        let found = parse(text, Path::new("/store"));
        let pairs: Vec<_> = found.iter().map(|m| (m.name.as_deref(), m.url.as_str())).collect();
        assert_eq!(pairs, expected, "{text}");
    }

    #[test]
    fn names_files_and_urls_are_told_apart() {
        check("a=first.mar,second.mar", &[(Some("a"), "first.mar"), (None, "second.mar")]);
        check(" a.mar , , b = b.mar", &[(None, "a.mar"), (Some("b"), "b.mar")]);
        check("https://x/y.mar?a=b", &[(None, "https://x/y.mar?a=b")]);
        check("n=https://x/y.mar", &[(Some("n"), "https://x/y.mar")]);
        check("none", &[]);
    }

    #[test]
    fn all_means_every_archive_and_directory_of_the_store() {
        let store = tempfile::tempdir().expect("directory");
        for file in ["b.mar", "a.tar.gz", "notes.txt", ".hidden.mar", "c.onnx"] {
            std::fs::write(store.path().join(file), "").expect("file");
        }
        std::fs::create_dir(store.path().join("d")).expect("directory");
        let found = parse("ALL", store.path());
        let names: Vec<_> = found.iter().map(|m| m.url.as_str()).collect();
        assert_eq!(names, ["a.tar.gz", "b.mar", "c.onnx", "d"]);
    }
}
