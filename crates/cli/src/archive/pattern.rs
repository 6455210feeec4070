//! File name patterns as of Python's `glob`: `*`, `?` and `[...]` match within one path element, and
//! never a leading dot.

use std::path::{Path, PathBuf};

use regex::Regex;

/// Whether the text has a wildcard in it.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The paths that match, sorted. Directories that cannot be read match nothing.
pub fn matches(pattern: &str) -> Vec<PathBuf> {
    let start = if pattern.starts_with('/') { "/" } else { "" };
    let elements = pattern.split('/').filter(|element| !element.is_empty());
    elements.fold(vec![PathBuf::from(start)], |paths, element| {
        paths.iter().flat_map(|path| step(path, element)).collect()
    })
}

fn step(path: &Path, element: &str) -> Vec<PathBuf> {
    if !is_pattern(element) {
        let next = path.join(element);
        return if next.exists() { vec![next] } else { Vec::new() };
    }
    let Some(rule) = rule(element) else { return Vec::new() };
    let mut found: Vec<PathBuf> = names(path)
        .filter(|name| element.starts_with('.') || !name.starts_with('.'))
        .filter(|name| rule.is_match(name))
        .map(|name| path.join(name))
        .collect();
    found.sort();
    found
}

fn names(path: &Path) -> impl Iterator<Item = String> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// The element as a regular expression; a bracket that is never closed stands for itself.
fn rule(element: &str) -> Option<Regex> {
    let mut rule = String::from("(?s)^");
    let mut rest = element;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match (first, bracket(rest)) {
            ('*', _) => rule.push_str(".*"),
            ('?', _) => rule.push('.'),
            ('[', Some((class, after))) => {
                rule.push_str(&class);
                rest = after;
            }
            _ => rule.push_str(&regex::escape(first.encode_utf8(&mut [0; 4]))),
        }
    }
    rule.push('$');
    Regex::new(&rule).ok()
}

/// The class after an opening bracket and what follows it. A `]` right at its beginning belongs to
/// the class.
fn bracket(text: &str) -> Option<(String, &str)> {
    let (negation, inside) = match text.strip_prefix('!') {
        Some(inside) => ("^", inside),
        None => ("", text),
    };
    let from = inside.chars().next()?.len_utf8();
    let end = from + inside[from..].find(']')?;
    let class = inside[..end].replace('\\', r"\\").replace('[', r"\[").replace(']', r"\]");
    let class = class.replace('^', r"\^").replace('&', r"\&").replace('~', r"\~");
    Some((format!("[{negation}{class}]"), &inside[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_pythons_glob_does() {
        let dir = tempfile::tempdir().expect("directory");
        for name in ["a.txt", "b.txt", "ab.txt", ".hidden.txt", "[x", "d/a.txt", "d/e/a.txt"] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            std::fs::write(path, "").expect("file");
        }
        for (pattern, expected) in [
            ("*.txt", vec!["a.txt", "ab.txt", "b.txt"]),
            ("?.txt", vec!["a.txt", "b.txt"]),
            ("[ac].txt", vec!["a.txt"]),
            ("[!a].txt", vec!["b.txt"]),
            ("[a-b].txt", vec!["a.txt", "b.txt"]),
            ("*/a.txt", vec!["d/a.txt"]),
            ("d/*/a*", vec!["d/e/a.txt"]),
            (".h*", vec![".hidden.txt"]),
            ("[x*", vec!["[x"]),
            ("**/e", vec!["d/e"]),
            ("z*", vec![]),
        ] {
            let found = matches(&format!("{}/{pattern}", dir.path().display()));
            let expected: Vec<_> = expected.iter().map(|name| dir.path().join(name)).collect();
            assert_eq!(found, expected, "{pattern}");
        }
    }
}
