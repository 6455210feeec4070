//! The package registry: which index pip would ask, and which file of it is for this machine.

use reqwest::Url;
use serde::Deserialize;

use crate::env::Env;

/// Where packages come from unless pip is told otherwise.
const DEFAULT: &str = "https://pypi.org/simple";

/// A page of the simple index, as JSON (PEP 691).
#[derive(Debug, Deserialize)]
pub struct IndexPage {
    files: Vec<IndexFile>,
}

/// A file of a package.
#[derive(Clone, Debug, Deserialize)]
pub struct IndexFile {
    /// Its name, which tells for what it is made.
    pub filename: String,
    /// Where it is, perhaps relative to the page.
    pub url: String,
    /// Its sums by their names.
    pub hashes: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    yanked: Value,
}

type Value = serde_json::Value;

/// The index that pip would ask: `PIP_INDEX_URL`, or `index-url` of its configuration.
pub fn base(env: &Env) -> String {
    let variable = env.text("PIP_INDEX_URL").filter(|url| !url.is_empty()).map(str::to_owned);
    let configured = || {
        let home = |file: &str| Some(env.path("HOME")?.join(file));
        let files = [
            env.path("PIP_CONFIG_FILE"),
            home(".config/pip/pip.conf"),
            home(".pip/pip.conf"),
            Some("/etc/pip.conf".into()),
        ];
        let text = |file: std::path::PathBuf| std::fs::read_to_string(file).ok();
        files.into_iter().flatten().filter_map(text).find_map(|text| index_url(&text))
    };
    variable.or_else(configured).unwrap_or_else(|| DEFAULT.to_owned())
}

/// `index-url` of the section `global` or `install`.
fn index_url(config: &str) -> Option<String> {
    let mut counts = false;
    for line in config.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            counts = ["global]", "install]"].contains(&section);
        } else if let Some((key, value)) = line.split_once('=').filter(|_| counts)
            && ["index-url", "index_url"].contains(&key.trim())
        {
            return Some(value.trim().to_owned());
        }
    }
    None
}

/// The page of a package.
pub fn page(base: &str, package: &str) -> Result<Url, String> {
    let text = format!("{}/{package}/", base.trim_end_matches('/'));
    Url::parse(&text).map_err(|error| format!("{text} is no URL: {error}"))
}

impl IndexPage {
    /// Reads a page as JSON, or as the HTML that older indexes and mirrors send (PEP 503).
    pub fn read(page: &[u8]) -> Result<Self, String> {
        if !page.trim_ascii_start().starts_with(b"<") {
            return serde_json::from_slice(page).map_err(|error| error.to_string());
        }
        let text = String::from_utf8_lossy(page);
        let files: Vec<IndexFile> = text.split("<a ").skip(1).filter_map(link).collect();
        if files.is_empty() { Err("it has no links".to_owned()) } else { Ok(Self { files }) }
    }

    /// The newest wheel for this machine, or the one of this version.
    pub fn wheel(&self, machine: &str, version: Option<&str>) -> Option<&IndexFile> {
        let fits = |file: &&IndexFile| {
            let found = version_of(&file.filename);
            let yanked = !matches!(file.yanked, Value::Null | Value::Bool(false));
            let wanted = match version {
                Some(version) => found == Some(version),
                None => !yanked && found.is_some_and(|found| order(found).is_some()),
            };
            let platform = file.filename.strip_suffix(".whl").is_some_and(|name| {
                name.contains("manylinux") && name.ends_with(&format!("_{machine}"))
            });
            wanted && platform
        };
        let newest = |file: &&IndexFile| version_of(&file.filename).and_then(order);
        self.files.iter().filter(fits).max_by_key(newest)
    }
}

/// A file of an HTML page: what follows `<a `.
fn link(text: &str) -> Option<IndexFile> {
    let (attributes, rest) = text.split_once('>')?;
    let (_, address) = attributes.split_once("href=\"")?;
    let (address, _) = address.split_once('"')?;
    let (url, sum) = address.split_once("#sha256=")?;
    let hashes = [("sha256".to_owned(), sum.to_owned())].into();
    let filename = rest.split_once('<')?.0.trim().to_owned();
    let yanked = Value::Bool(attributes.contains("data-yanked"));
    Some(IndexFile { filename, url: url.replace("&amp;", "&"), hashes, yanked })
}

/// `1.31.1` of `onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl`.
pub fn version_of(filename: &str) -> Option<&str> {
    filename.split('-').nth(1)
}

/// Versions of numbers alone, in their order; those that are not released have none.
fn order(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_released_wheel_of_this_machine_is_taken() {
        let file = |name: &str, yanked: bool| serde_json::json!({"filename": name, "url": name, "hashes": {"sha256": "00"}, "yanked": yanked});
        let page: IndexPage = serde_json::from_value(serde_json::json!({ "files": [
            file("onnxruntime-1.9.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", false),
            file("onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl", false),
            file("onnxruntime-1.32.0-cp311-cp311-manylinux_2_28_x86_64.whl", true),
            file("onnxruntime-1.33.0rc1-cp311-cp311-manylinux_2_28_x86_64.whl", false),
            file("onnxruntime-1.40.0-cp311-cp311-win_amd64.whl", false),
            file("onnxruntime-1.40.0.tar.gz", false),
        ]}))
        .expect("a page");
        let name = |machine, version| page.wheel(machine, version).map(|it| it.filename.as_str());
        let newest = "onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl";
        assert_eq!(name("x86_64", None), Some(newest));
        assert!(name("x86_64", Some("1.9.0")).is_some_and(|name| name.contains("1.9.0")));
        assert_eq!(name("riscv64", None), None);
    }

    #[test]
    fn a_page_in_html_is_read_too() {
        let html = br#"<!DOCTYPE html><a href="../f/onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl#sha256=ab" x="1">onnxruntime-1.31.1-cp311-cp311-manylinux_2_28_x86_64.whl</a><br/>"#;
        let page = IndexPage::read(html).expect("a page");
        let wheel = page.wheel("x86_64", None).expect("a wheel");
        assert!(wheel.url.starts_with("../f/") && wheel.url.ends_with(".whl"), "{}", wheel.url);
        assert_eq!(wheel.hashes["sha256"], "ab");
        assert!(IndexPage::read(b"<html>404</html>").is_err() && IndexPage::read(b"{}").is_err());
    }

    #[test]
    fn pips_own_index_is_asked() {
        let config =
            "[global]\ncert = /x\nindex-url = https://mirror/simple/\n[list]\nindex-url = no";
        assert_eq!(index_url(config).as_deref(), Some("https://mirror/simple/"));
        assert_eq!(index_url("[freeze]\nindex-url = no"), None);
        let page = page("https://mirror/simple/", "onnxruntime").expect("a URL");
        assert_eq!(page.as_str(), "https://mirror/simple/onnxruntime/");
    }
}
