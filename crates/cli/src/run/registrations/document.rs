//! The text of a shared list, and the models it comes to. Relative paths count from where the list is: from
//! its directory, or from its folder in a bucket or on a web server.

use std::path::{Path, PathBuf};

use jitney_engine::store::Sha256;
use reqwest::Url;

use crate::definition::is_definition;
use crate::failure::Failure;
use crate::plan::{RegistrationsPlan, Startup};
use crate::serve::file;

/// Digits of a revision.
const REVISION_DIGITS: usize = 12;

/// What was read: one file, or all files of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListDocument {
    /// The text of each file and where it is, in the order of their names.
    pub files: Vec<(String, String)>,
}

impl ListDocument {
    /// What names this content: the beginning of its sum.
    pub fn revision(&self) -> String {
        let texts: Vec<&str> = self.files.iter().map(|(_, text)| text.as_str()).collect();
        let sum = Sha256::of(texts.join("\n").as_bytes()).to_string();
        sum[..REVISION_DIGITS].to_owned()
    }

    /// Its models, with what flags, variables and the configuration say of all models.
    ///
    /// # Errors
    /// What is wrong with it, with its line.
    pub fn models(&self, plan: &RegistrationsPlan) -> Result<Vec<Startup>, Failure> {
        let mut models: Vec<Startup> = Vec::new();
        for (place, text) in &self.files {
            for entry in file::list(text, Path::new(place))? {
                let url = located(&entry.url, place);
                let settings = plan.above.clone().or(&entry.settings).or(&plan.below);
                let settings = settings.only(jitney_settings::model::SETTINGS);
                let entry = Startup { url, settings, ..entry };
                check(&entry, &models, place)?;
                models.push(entry);
            }
        }
        Ok(models)
    }
}

/// Names tell models of different readings apart, so each has one, and each version comes once.
fn check(entry: &Startup, others: &[Startup], place: &str) -> Result<(), Failure> {
    let Some(name) = &entry.name else {
        return Err(Failure::usage(format!("{place}: the model {} has no name", entry.shown())));
    };
    let twice =
        others.iter().any(|other| other.name == entry.name && other.version == entry.version);
    if !twice {
        return Ok(());
    }
    let hint = "give each of them another `version`";
    Err(Failure::usage(format!("{place}: the model {name} is listed twice")).hint(hint))
}

/// Where a model of the list is.
fn located(url: &str, place: &str) -> String {
    if url.contains("://") || url.starts_with('/') {
        return url.to_owned();
    }
    match Url::parse(place).ok().filter(|_| place.contains("://")) {
        // Code is never fetched: a definition is what is installed here.
        Some(base) if !is_definition(url) => base.join(url).map_or(url.to_owned(), String::from),
        Some(_) => url.to_owned(),
        None => {
            let base: PathBuf = Path::new(place).parent().unwrap_or(Path::new("")).to_owned();
            base.join(url).to_string_lossy().into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jitney_settings::{SettingSource, Values, model};

    use super::*;

    fn plan() -> RegistrationsPlan {
        let above = Values::default().with(&model::QUEUE, 7_u64, SettingSource::Default);
        let every = Duration::from_secs(1);
        RegistrationsPlan { source: String::new(), every, above, below: Values::default() }
    }

    fn models(place: &str, text: &str) -> Result<Vec<Startup>, Failure> {
        let files = vec![(place.to_owned(), text.to_owned())];
        ListDocument { files }.models(&plan())
    }

    #[test]
    fn the_list_of_jitney_yaml_is_read_and_flags_win() {
        let text = "models:\n- {name: a, path: a.mar, workers: 2, queue: 3}\n- {name: b, url: 's3://x/b.onnx'}\n";
        let read = models("/etc/lists/models.yaml", text).expect("reads");
        assert_eq!(read[0].url, "/etc/lists/a.mar");
        assert_eq!(read[1].url, "s3://x/b.onnx");
        assert_eq!(read[0].settings.show(&model::QUEUE).as_deref(), Some("7"));
        assert_eq!(read[0].settings.show(&model::WORKERS).as_deref(), Some("2"));
    }

    #[test]
    fn paths_count_from_where_the_list_is() {
        for (place, url, expected) in [
            ("s3://bucket/models/list.yaml", "a.mar", "s3://bucket/models/a.mar"),
            ("https://host/x/list.yaml?sig=1", "v2/a.mar", "https://host/x/v2/a.mar"),
            ("https://host/list.yaml", "/mnt/a.mar", "/mnt/a.mar"),
            ("https://host/list.yaml", "app:Model", "app:Model"),
            ("/etc/list.yaml", "gs://b/a.mar", "gs://b/a.mar"),
        ] {
            assert_eq!(located(url, place), expected);
        }
    }

    #[test]
    fn mistakes_refuse_the_whole_list() {
        for (text, message) in [
            ("", "l.yaml: it has no list `models`"),
            ("{}", "l.yaml: it has no list `models`"),
            ("port: 1\nmodels: []\n", "l.yaml line 1: unknown key `port`"),
            (
                "models:\n- {name: a, path: a.mar, wokers: 2}\n",
                "l.yaml line 2: unknown key `wokers`",
            ),
            ("models:\n- {path: a.mar}\n", "l.yaml: the model a.mar has no name"),
            (
                "models:\n- {name: a, path: a.mar}\n- {name: a, path: b.mar}\n",
                "l.yaml: the model a is listed twice",
            ),
        ] {
            assert_eq!(models("l.yaml", text).expect_err(text).message, message);
        }
        assert_eq!(models("l.yaml", "models: []").expect("reads"), []);
    }
}
