//! The numbers of the adaptive policy: read from where they are declared, moved in a copy of the code,
//! and written to docs/concepts/policy-numbers.md.
//!
//! A number is a `const` of crates/batcher/src/adaptive or learned with a comment of its own, which ends with where
//! it comes from: `Derived:`, `Measured:`, `Chosen:`, or `Bound:` for the length of a table, which is not
//! moved. The shipped batcher knows nothing of this.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Below the root of the repository.
pub const SOURCE: &str = "crates/batcher/src";
/// Where numbers stand, below [`SOURCE`].
const PLACES: [&str; 3] = ["adaptive", "learned", "learned.rs"];
/// The page.
pub const PAGE: &str = "docs/concepts/policy-numbers.md";
/// Which number a moved build changes, and by which factor: `file:NAME:0.5`.
pub const MOVED: &str = "JITNEY_NUMBER";

const ORIGINS: [&str; 4] = ["Derived:", "Measured:", "Chosen:", "Bound:"];

/// A number as it is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyNumber {
    /// Its file below [`SOURCE`].
    pub file: String,
    /// Its name, unique in the file.
    pub name: String,
    /// Its type, and its value as it is written.
    pub kind: String,
    /// See above.
    pub value: String,
    /// What it means.
    pub meaning: String,
    /// Where it comes from; empty where nothing is said.
    pub origin: String,
}

/// What the scores are when a number is halved and when it is doubled.
pub type MovedScores = [[f64; 4]; 2];

impl PolicyNumber {
    /// Under this name a moved build is told of it.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}:{}", self.file, self.name)
    }

    /// Whether a moved build can change it.
    #[must_use]
    pub fn moves(&self) -> bool {
        !self.origin.starts_with("Bound:")
    }

    /// The line that declares it where it can be moved.
    fn moved_declaration(&self, open: &str) -> String {
        let Self { name, kind, value, .. } = self;
        let key = self.key();
        format!(
            "{open}static {name}: std::sync::LazyLock<{kind}> = std::sync::LazyLock::new(|| {{ \
             let it: {kind} = {value}; crate::moved::number({key:?}, it as f64) as {kind} }});"
        )
    }
}

/// All source files of the policy but tests, by their path below [`SOURCE`].
///
/// # Errors
/// A file cannot be read.
pub fn sources(root: &Path) -> io::Result<BTreeMap<String, String>> {
    let (top, mut found) = (root.join(SOURCE), BTreeMap::new());
    let mut paths: Vec<PathBuf> = PLACES.iter().map(|place| top.join(place)).collect();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            for entry in fs::read_dir(path)? {
                paths.push(entry?.path());
            }
        } else if path.file_name().is_some_and(|name| name != "tests.rs") {
            let name = path.strip_prefix(&top).map_err(io::Error::other)?;
            found.insert(name.display().to_string(), fs::read_to_string(&path)?);
        }
    }
    Ok(found)
}

/// What is not a test.
fn production(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

/// `const NAME: type = value;` at the left edge, with what stands before it.
fn declaration(line: &str) -> Option<(&str, &str, &str, &str)> {
    let (open, rest) = line.split_once("const ")?;
    let (name, rest) = rest.split_once(": ")?;
    let (kind, value) = rest.strip_suffix(';')?.split_once(" = ")?;
    matches!(open, "" | "pub(crate) " | "pub(super) ").then_some((open, name, kind, value))
}

/// Every number of the policy, by file and in the order in which they are declared.
#[must_use]
pub fn declared(sources: &BTreeMap<String, String>) -> Vec<PolicyNumber> {
    let mut all = Vec::new();
    for (file, text) in sources {
        let mut comment = String::new();
        for line in production(text).lines() {
            if let Some(words) = line.strip_prefix("/// ") {
                comment = format!("{comment} {words}");
                continue;
            }
            let comment = std::mem::take(&mut comment);
            if let Some((_, name, kind, value)) = declaration(line) {
                let cut = ORIGINS.iter().find_map(|origin| comment.find(origin));
                let (meaning, origin) = comment.split_at(cut.unwrap_or(comment.len()));
                let [name, kind, value] = [name, kind, value].map(str::to_owned);
                let [meaning, origin] = [meaning, origin].map(|it| it.trim().to_owned());
                all.push(PolicyNumber { file: file.clone(), name, kind, value, meaning, origin });
            }
        }
    }
    all
}

/// The sources with every number that moves read when the program starts.
#[must_use]
pub fn movable(sources: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let numbers = declared(sources);
    let shared = |number: &PolicyNumber| {
        let text = &sources[&number.file];
        text.contains(&format!("pub(crate) const {}:", number.name))
    };
    let one = |(file, text): (&String, &String)| {
        let here: Vec<_> =
            numbers.iter().filter(|it| it.moves() && (it.file == *file || shared(it))).collect();
        let code = production(text);
        let lines = code.lines().map(|line| moved_line(line, file, &here));
        (file.clone(), lines.collect::<Vec<_>>().join("\n"))
    };
    sources.iter().map(one).collect()
}

fn moved_line(line: &str, file: &str, numbers: &[&PolicyNumber]) -> String {
    if let Some((open, name, ..)) = declaration(line) {
        let own = numbers.iter().find(|it| it.name == name && it.file == file);
        return own.map_or(line.to_owned(), |it| it.moved_declaration(open));
    }
    if line.starts_with("use ") || line.trim_start().starts_with("//") {
        return line.to_owned();
    }
    let mut line = line.to_owned();
    for number in numbers {
        line = replaced(&line, &number.name, &format!("(*{})", number.name));
    }
    line
}

/// Replaces a word, not parts of longer ones.
fn replaced(line: &str, word: &str, with: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let apart = !before.ends_with(is_word) && !after.starts_with(is_word);
        let _ = write!(out, "{before}{}", if apart { with } else { word });
        rest = after;
    }
    out + rest
}

/// The module that a moved build has besides.
pub const MOVED_MODULE: &str = r#"//! Reads which number is moved.

/// A number near 1 is moved by its distance from 1: shares stay shares, and factors stay factors.
pub(crate) fn number(key: &str, value: f64) -> f64 {
    let asked = std::env::var("JITNEY_NUMBER").unwrap_or_default();
    let factor = asked.strip_prefix(key).and_then(|rest| rest.strip_prefix(':'));
    let Some(factor) = factor.and_then(|it| it.parse::<f64>().ok()) else { return value };
    if value > 0.5 && value <= 1.5 && value != 1.0 { 1.0 + (value - 1.0) * factor } else { value * factor }
}
"#;

/// The page.
#[must_use]
pub fn page(
    numbers: &[PolicyNumber],
    base: [f64; 4],
    moved: &BTreeMap<String, MovedScores>,
) -> String {
    let [mean, p99, on_time, answers] = base;
    let mut text = format!(
        "{PAGE_HEAD}\n\
         As they are, the scores are: mean {mean:.3} ms, p99 {p99:.3} ms, on time {:.2} %, {answers:.0} answers/s.\n",
        on_time * 100.0
    );
    let mut file = "";
    for number in numbers {
        if number.file != file {
            file = &number.file;
            let _ = write!(text, "\n## `{file}`\n\n{TABLE_HEAD}\n");
        }
        let scores = moved.get(&number.key());
        let cells = scores.map(|it| it.map(|scores| difference(base, scores)));
        let [halved, doubled] = cells.unwrap_or_else(|| ["not moved".into(), "not moved".into()]);
        let _ = writeln!(text, "{} {halved} | {doubled} |", row(number));
    }
    text
}

/// The part of a number's row that follows from its declaration.
#[must_use]
pub fn row(number: &PolicyNumber) -> String {
    let PolicyNumber { name, value, meaning, origin, .. } = number;
    format!("| `{name}` | {value} | {meaning} | {origin} |")
}

/// By how much the scores change, in percent; on time in percent of all requests.
fn difference(base: [f64; 4], moved: [f64; 4]) -> String {
    let ratio = |at: usize| (moved[at] / base[at] - 1.0) * 100.0;
    let points = (moved[2] - base[2]) * 100.0;
    let figures = [ratio(0), ratio(1), points, ratio(3)];
    if figures.iter().all(|it| it.abs() < 0.005) {
        return "nothing".to_owned();
    }
    figures.map(|it| if it.abs() < 0.05 { "0".to_owned() } else { format!("{it:+.1}") }).join(" / ")
}

const TABLE_HEAD: &str =
    "| number | value | meaning | origin | halved | doubled |\n|---|---|---|---|---|---|";

const PAGE_HEAD: &str = "# The policy's numbers

Made by `cargo run --release -p jitney-lab --example numbers`; edit the comments of the declarations, not this page.

The adaptive policy learns the model and the traffic by itself. What it cannot learn are the numbers below: how much proof it asks for, how fast it forgets, what it weighs against what. Nobody has to set them. This page says what each one means, where it comes from, and what happens to the scores when it is halved and when it is doubled (numbers between 0.5 and 1.5: when their distance from 1 is).

The scores come from 40 simulated worlds (`bench/lab/src/scores.rs`), always with the same arrivals: the geometric mean of the mean latencies of open traffic, the same of the 99th percentiles, the mean share of requests answered by their deadline, and the geometric mean of the answers per second of clients that wait. A cell shows the four changes in this order: latencies and answers in percent, on time in percentage points. Less latency is better; more on time and more answers are. Chance alone moves them by a few tenths. `nothing` means that not one decision changed: the number guards a case that these worlds do not have. They have one priority, one group and one shape of input.

- **Derived**: follows from another number or from arithmetic.
- **Measured**: the best of several values that were tried in the laboratory or on a server.
- **Chosen**: by judgement; the scores say how much depends on it.
- **Bound**: the length of a table. It limits memory and is not moved.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_is_read_and_made_movable() {
        let text = "/// Meaning here.\n/// Chosen: by hand.\nconst SAFE: f64 = 0.9;\n\nfn f(x: f64) -> f64 { x * SAFE + UNSAFE }\n";
        let sources = BTreeMap::from([("a.rs".to_owned(), text.to_owned())]);
        let [number] = &declared(&sources)[..] else { panic!("one number") };
        assert_eq!((&*number.meaning, &*number.origin), ("Meaning here.", "Chosen: by hand."));
        let moved = &movable(&sources)["a.rs"];
        assert!(
            moved.contains("let it: f64 = 0.9; crate::moved::number(\"a.rs:SAFE\", it as f64)")
        );
        assert!(moved.contains("x * (*SAFE) + UNSAFE"), "{moved}");
    }
}
