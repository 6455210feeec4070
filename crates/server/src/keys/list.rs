//! `keys.yaml`: a list with a row for each key. What is wrong in it is said with its line, and without what stands
//! there, since that may be a secret that somebody has put into the wrong place.

use std::collections::HashSet;
use std::io;
use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jitney_engine::quota::ItemRate;
use jitney_engine::store::Sha256;
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use super::scope::Scope;
use crate::request_options::is_tenant;

/// Random bytes of a key that [`fresh_key`] makes: 192 bits.
pub const KEY_BYTES: usize = 24;
/// The longest name of a key.
const NAME_BYTES_MAX: usize = 64;

/// A row of the file.
pub struct KeyRow {
    /// The number of the line with its name.
    pub number: usize,
    /// What logs and the audit call it.
    pub name: String,
    /// The sum of the key's text.
    pub sha256: Sha256,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// Who pays for its requests.
    pub tenant: Option<String>,
    /// When it ends, if ever.
    pub expires: Option<SystemTime>,
    /// Items a second and at once, if they are limited.
    pub rate: Option<ItemRate>,
    /// Requests at a time, if they are limited.
    pub concurrency: Option<u64>,
    /// The subjects of certificates that stand for the key.
    pub subjects: Vec<String>,
}

/// A row as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRow {
    name: Spanned<String>,
    #[serde(deserialize_with = "sum")]
    sha256: Sha256,
    #[serde(deserialize_with = "scopes")]
    scopes: Vec<Scope>,
    tenant: Option<String>,
    #[serde(default, deserialize_with = "moment")]
    expires: Option<SystemTime>,
    rate: Option<f64>,
    burst: Option<u64>,
    concurrency: Option<u64>,
    #[serde(default)]
    subjects: Vec<String>,
}

/// A key that nobody can guess, in characters that every header and shell takes.
///
/// # Errors
/// The system gives no randomness.
pub fn fresh_key() -> io::Result<String> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// The rows of a file's text; one that holds nothing has none.
///
/// # Errors
/// What is wrong, and in which line.
pub fn read(text: &str) -> Result<Vec<KeyRow>, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    let rows: Option<Vec<WrittenRow>> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    let (mut names, mut sums, mut subjects) = (HashSet::new(), HashSet::new(), HashSet::new());
    let check = |written: WrittenRow| {
        let line = written.name.referenced.line() as usize;
        let row = written.row(line).map_err(|why| format!("{why} (the key in line {line})"))?;
        let twice = |what: &str| {
            Err(format!("{what} stands in two rows (the second in line {line}): remove one"))
        };
        if !names.insert(row.name.clone()) {
            return twice("the name");
        }
        if !sums.insert(row.sha256) {
            return twice("the sha256");
        }
        if !row.subjects.iter().all(|subject| subjects.insert(subject.clone())) {
            return twice("a subject");
        }
        Ok(row)
    };
    rows.unwrap_or_default().into_iter().map(check).collect()
}

impl WrittenRow {
    fn row(self, number: usize) -> Result<KeyRow, &'static str> {
        let Self { name, sha256, scopes, tenant, expires, concurrency, subjects, .. } = self;
        let name = name.value;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(plain) {
            return Err("name must be 1 to 64 letters, digits and characters of -_.@");
        }
        if scopes.is_empty() {
            return Err("scopes must name what the key may do: predict, explain, manage, metrics");
        }
        if tenant.as_deref().is_some_and(|tenant| !is_tenant(tenant)) {
            return Err("tenant must be 1 to 128 ASCII characters");
        }
        if concurrency == Some(0) {
            return Err("concurrency must be above zero; remove the row to lock a key out");
        }
        if subjects.iter().any(String::is_empty) {
            return Err("subjects must not be empty");
        }
        let rate = rate(self.rate, self.burst)?;
        Ok(KeyRow { number, name, sha256, scopes, tenant, expires, rate, concurrency, subjects })
    }
}

/// The burst is one second's items where none is given.
fn rate(per_second: Option<f64>, burst: Option<u64>) -> Result<Option<ItemRate>, &'static str> {
    let Some(rate) = per_second else {
        return burst.map_or(Ok(None), |_| Err("burst needs a rate: items a second"));
    };
    let burst = burst.unwrap_or(rate.ceil().max(1.0) as u64);
    let rate = ItemRate::new(rate, burst);
    rate.map(Some).ok_or("rate and burst are items a second and items at once, both above zero")
}

fn sum<'de, D: Deserializer<'de>>(from: D) -> Result<Sha256, D::Error> {
    let wrong = "sha256 must be the 64 hexadecimal digits of the key's sum, not the key itself: `jitney keys new` \
                 writes them, and so does `printf %s KEY | sha256sum`";
    String::deserialize(from)?.parse().map_err(|_| serde::de::Error::custom(wrong))
}

fn scopes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Scope>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}

fn moment<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SystemTime>, D::Error> {
    let wrong =
        "expires must be a date or a time in UTC, such as 2027-01-31 or 2027-01-31T12:00:00Z";
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let parsed = read_moment(&text);
    parsed.map(Some).ok_or_else(|| serde::de::Error::custom(wrong))
}

/// A date, which means its first moment, or a time.
fn read_moment(text: &str) -> Option<SystemTime> {
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    humantime::parse_rfc3339(&whole).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn a_row_says_all_about_a_key() {
        let text = format!(
            "# ours\n- name: search\n  sha256: {SUM}\n  scopes: [predict, 'explain:res*']\n  tenant: gold\n  \
             expires: 2027-01-31\n  rate: 2.5\n  concurrency: 3\n  subjects: [CN=search]\n"
        );
        let rows = read(&text).unwrap();
        let [row] = &rows[..] else { panic!("one row") };
        assert_eq!((row.name.as_str(), row.tenant.as_deref()), ("search", Some("gold")));
        assert_eq!(row.sha256.to_string(), SUM);
        assert_eq!(row.rate, ItemRate::new(2.5, 3));
        assert_eq!((row.concurrency, row.subjects.len()), (Some(3), 1));
        let expires = humantime::parse_rfc3339("2027-01-31T00:00:00Z").unwrap();
        assert_eq!(row.expires, Some(expires));
        assert!(read("").unwrap().is_empty() && read("# nobody\n").unwrap().is_empty());
        assert!(read("[]").unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_the_value() {
        let good = format!("- name: a\n  sha256: {SUM}\n  scopes: [predict]\n");
        let row = |more: &str| format!("{good}  {more}\n");
        let other = SUM.replace('9', "8");
        for (text, line, expected) in [
            (row("rights: SECRET"), "line 4", "unknown field"),
            (row("rate: 0"), "line 1", "rate and burst"),
            (row("burst: 3"), "line 1", "burst needs a rate"),
            (row("concurrency: 0"), "line 1", "concurrency"),
            (row("tenant: ''"), "line 1", "tenant"),
            (row("expires: SECRET"), "line 4", "expires must be a date"),
            (row("subjects: ['']"), "line 1", "subjects"),
            (good.replace("predict", "SECRET"), "line 3", "a scope is predict"),
            (good.replace("[predict]", "[]"), "line 1", "scopes must name"),
            (good.replace(SUM, "SECRET"), "line 2", "`jitney keys new`"),
            (good.replace("name: a", "name: SECRET KEY"), "line 1", "name must be"),
            (format!("{good}{}", good.replace(SUM, &other)), "line 4", "the name stands in two"),
            (format!("{good}{}", good.replace(": a", ": b")), "line 4", "the sha256 stands in two"),
            ("- name: a\n".to_owned(), "line 1", "missing field"),
            ("- [".to_owned(), "line", ""),
        ] {
            let error = read(&text).err().unwrap_or_else(|| panic!("{text} is read"));
            assert!(error.contains(line) && error.contains(expected), "{text}\n{error}");
            assert!(!error.contains("SECRET"), "{error}");
        }
    }

    #[test]
    fn keys_are_random_and_safe_in_headers() {
        let (key, other) = (fresh_key().unwrap(), fresh_key().unwrap());
        assert!(key != other && key.len() == KEY_BYTES * 4 / 3);
        assert!(key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)));
    }
}
