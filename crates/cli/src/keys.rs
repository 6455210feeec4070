//! `jitney keys`: makes, lists and revokes the keys of `keys.yaml`. What people wrote into the file stays, and it is
//! replaced as a whole, so that a server never reads half of it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use jitney_engine::store::Sha256;
use jitney_server::auth::KeyStore as _;
use jitney_server::keys::{KeyRow, fresh_key, read};
use jitney_sim::TextTable;

use crate::console;
use crate::failure::{Failure, cannot};
use crate::flags::keys::{KeysCommand, KeysFlags, NewKeyFlags};
use crate::key_file::KeyFile;

/// Carries out a command.
pub fn main(flags: &KeysFlags) -> Result<u8, Failure> {
    match &flags.command {
        KeysCommand::New(flags) => new(flags)?,
        KeysCommand::List(list) => console::out(table(&rows(&text(&list.file)?, &list.file)?)),
        KeysCommand::Revoke(flags) => {
            let file = &flags.list.file;
            save(file, &without(&text(file)?, &flags.name, file)?)?;
            console::err(format!("{} is no key of {} any more", flags.name, file.display()));
        }
    }
    Ok(0)
}

fn new(flags: &NewKeyFlags) -> Result<(), Failure> {
    let file = &flags.list.file;
    let mut all = if file.exists() { text(file)? } else { String::new() };
    rows(&all, file)?;
    let key = fresh_key().map_err(cannot("make a key"))?;
    if !all.is_empty() && !all.ends_with('\n') {
        all.push('\n');
    }
    all.push_str(&written(flags, &Sha256::of(key.as_bytes()))?);
    rows(&all, file)?;
    save(file, &all)?;
    console::out(key);
    console::err(format!(
        "this is the key {:?}, which is shown only now; {} holds its SHA-256",
        flags.name,
        file.display()
    ));
    Ok(())
}

/// The row of a new key.
fn written(flags: &NewKeyFlags, sum: &Sha256) -> Result<String, Failure> {
    let NewKeyFlags { name, scopes, tenant, rate, burst, concurrency, subjects, .. } = flags;
    let scopes: Vec<_> = scopes.iter().map(ToString::to_string).collect();
    let expires = flags.expires.as_deref().map(expiry).transpose()?;
    let subjects = Some(subjects).filter(|subjects| !subjects.is_empty());
    // JSON is YAML, and quotes what needs it.
    let fields = [
        ("scopes", Some(serde_json::json!(scopes))),
        ("tenant", tenant.as_ref().map(|it| it.as_str().into())),
        ("expires", expires.map(Into::into)),
        ("rate", rate.map(Into::into)),
        ("burst", burst.map(Into::into)),
        ("concurrency", concurrency.map(Into::into)),
        ("subjects", subjects.map(|it| serde_json::json!(it))),
    ];
    let mut row = format!("- name: {}\n  sha256: \"{sum}\"\n", serde_json::json!(name));
    for (field, value) in fields.into_iter().filter_map(|(field, value)| Some((field, value?))) {
        // Writing to a String cannot fail.
        let _ = writeln!(row, "  {field}: {value}");
    }
    Ok(row)
}

/// A moment as the file has it; a time such as `90d` counts from now.
fn expiry(text: &str) -> Result<String, Failure> {
    let Ok(time) = humantime::parse_duration(text) else { return Ok(text.to_owned()) };
    let moment = SystemTime::now().checked_add(time);
    let moment = moment.ok_or_else(|| Failure::usage(format!("--expires {text}: too far away")))?;
    Ok(humantime::format_rfc3339_seconds(moment).to_string())
}

fn table(keys: &[KeyRow]) -> String {
    let header = ["scopes", "tenant", "expires", "items/s", "burst", "concurrency", "subjects"];
    let mut table = TextTable::new("Keys", header.map(str::to_owned));
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for key in keys {
        let scopes: Vec<_> = key.scopes.iter().map(ToString::to_string).collect();
        let expires = key.expires.map(|it| humantime::format_rfc3339_seconds(it).to_string());
        let cells = [
            scopes.join(" "),
            or_none(key.tenant.clone()),
            or_none(expires),
            or_none(key.rate.map(|rate| rate.per_second().to_string())),
            or_none(key.rate.map(|rate| rate.burst().to_string())),
            or_none(key.concurrency.map(|it| it.to_string())),
            or_none(Some(key.subjects.join(" ")).filter(|it| !it.is_empty())),
        ];
        table.row(key.name.clone(), cells);
    }
    table.to_string()
}

/// The text without the lines of a row; comments around it stay.
fn without(all: &str, name: &str, file: &Path) -> Result<String, Failure> {
    let before = rows(all, file)?;
    let missing = || Failure::usage(format!("{} has no key {name:?}", file.display()));
    let at = before.iter().position(|row| row.name == name).ok_or_else(missing)?;
    let lines: Vec<&str> = all.lines().collect();
    let begins = |line: &&str| line.trim_start().starts_with('-');
    let named = before[at].number.saturating_sub(1).min(lines.len());
    let start =
        (0..=named).rev().find(|line| lines.get(*line).is_some_and(begins)).unwrap_or(named);
    let next = before.get(at + 1).map_or(lines.len(), |row| row.number.saturating_sub(1));
    let next = (start + 1..=next).rev().find(|line| lines.get(*line).is_some_and(begins));
    let mut end = next.filter(|next| at + 1 < before.len() && *next > start).unwrap_or(lines.len());
    let is_remark = |line: &str| line.trim().is_empty() || line.starts_with('#');
    while end > start + 1 && is_remark(lines[end - 1]) {
        end -= 1;
    }
    let kept = lines.iter().enumerate().filter(|(line, _)| !(start..end).contains(line));
    let text: String = kept.flat_map(|(_, line)| [line, "\n"]).collect();
    let sums = |rows: &[KeyRow]| rows.iter().map(|row| row.sha256).collect::<Vec<_>>();
    let mut expected = sums(&before);
    expected.remove(at);
    match read(&text) {
        Ok(after) if sums(&after) == expected => Ok(text),
        Ok(_) | Err(_) => Err(Failure::failed(format!(
            "{}: its rows are not written line by line; remove {name:?} with an editor",
            file.display()
        ))),
    }
}

fn rows(text: &str, file: &Path) -> Result<Vec<KeyRow>, Failure> {
    read(text).map_err(|why| Failure::usage(format!("{}: {why}", file.display())))
}

fn text(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| Failure::file("read", file, &error))
}

fn save(file: &Path, text: &str) -> Result<(), Failure> {
    let saved = KeyFile::at(file).and_then(|key_file| key_file.save(text));
    saved.map_err(|error| Failure::file("write", file, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> String {
        format!("- name: {name}\n  sha256: {}\n  scopes: [predict]\n", Sha256::of(name.as_bytes()))
    }

    #[test]
    fn a_row_goes_with_its_lines_and_comments_stay() {
        let (a, b, c) = (row("a"), row("b"), row("c"));
        let all = format!("# ours\n{a}\n# the second\n{b}# the third\n{c}# the end\n");
        let gone = |name| without(&all, name, Path::new("keys.yaml")).expect("removed");
        assert_eq!(gone("a"), format!("# ours\n\n# the second\n{b}# the third\n{c}# the end\n"));
        assert_eq!(gone("b"), format!("# ours\n{a}\n# the second\n# the third\n{c}# the end\n"));
        assert_eq!(gone("c"), format!("# ours\n{a}\n# the second\n{b}# the third\n# the end\n"));
        assert_eq!(without(&a, "a", Path::new("keys.yaml")).expect("removed"), "");
    }

    #[test]
    fn a_row_in_another_order_goes_too_and_one_in_braces_is_left_to_people() {
        let sum = Sha256::of(b"x");
        let turned = format!("-\n  scopes:\n  - predict\n  sha256: {sum}\n  name: x\n");
        let all = format!("{}{turned}{}", row("a"), row("b"));
        let gone = |all: &str, name| without(all, name, Path::new("keys.yaml"));
        assert_eq!(gone(&all, "b").expect("removed"), format!("{}{turned}", row("a")));
        let row = |name: &str| {
            format!("{{name: {name}, sha256: {}, scopes: [predict]}}", Sha256::of(name.as_bytes()))
        };
        let flow = format!("[{}, {}]\n", row("x"), row("y"));
        assert!(gone(&flow, "x").expect_err("left").message.contains("editor"));
        assert!(gone(&all, "y").expect_err("none").message.contains("no key"));
    }
}
