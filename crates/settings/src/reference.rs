//! The reference page, `docs/reference/settings.md`, made from the declarations.

use crate::{PropertyEffect, Setting, model, server, torchserve};

const HEAD: &str = "# Settings

Made from the declarations in `crates/settings`; a test compares. `jitney config serve ...` and `jitney config torchserve ...` print
every value that is in force and where it was set.

Under `jitney serve` the order is: registration parameter, flag, variable, the model's entry in `jitney.yaml`, `jitney.yaml`, what the
archive says (`model-config.yaml` or a decorator), default. Under `jitney torchserve` it is TorchServe's: `TS_` variable (with
`enable_envvars_config=true`), flag, `config.properties`, default; and for a model: registration parameter, archive, `models={...}`,
`config.properties`, default, except that the archive decides first about what is marked *archive first*.

An unknown flag or key of `jitney.yaml` is an error with the nearest name. An unknown `JITNEY_` variable or key of `config.properties`
is a warning with the nearest name. Other keys of `model-config.yaml` belong to the handler.
";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    let tables = [
        ("Models", model::SETTINGS),
        ("Server", server::SETTINGS),
        ("Only in config.properties", torchserve::SETTINGS),
    ];
    for (title, settings) in tables {
        page += &format!(
            "\n## {title}\n\n| setting | value | default | where | what it does |\n|---|---|---|---|---|\n"
        );
        page.extend(
            settings.iter().filter(|it| it.effect != PropertyEffect::Silent).map(|it| row(it)),
        );
    }
    page
}

fn row(setting: &Setting) -> String {
    let default = setting.default_note.or(setting.default).unwrap_or("none").replace('|', "\\|");
    let about = match setting.effect {
        PropertyEffect::Instead(what) => format!("No effect: {what}"),
        PropertyEffect::Java => "No effect: tunes the Java server".to_owned(),
        PropertyEffect::Acts | PropertyEffect::Silent => setting.about.to_owned(),
    };
    let name = setting.name;
    format!(
        "| `{name}` | {} | {default} | {} | {about} |\n",
        setting.kind.expected().replace('|', "\\|"),
        sources(setting).join("; ")
    )
}

/// Every source that can set it.
fn sources(setting: &Setting) -> Vec<String> {
    let mut sources = Vec::new();
    if let (Some(flag), Some(variable)) = (setting.flag, setting.jitney_variable()) {
        sources.push(format!("`--{flag}`, `{variable}`"));
    }
    if setting.yaml {
        sources.push(format!("jitney.yaml `{}`", setting.path()));
    }
    if let Some(key) = setting.property {
        sources.push(format!("config.properties `{key}`"));
    }
    let own = setting.section.map(|_| setting.path());
    let archive = own.into_iter().chain(setting.archive.names.iter().map(|&name| name.to_owned()));
    let archive: Vec<String> = archive.map(|key| format!("`{key}`")).collect();
    if !archive.is_empty() {
        let first = if setting.archive_first { " (archive first)" } else { "" };
        sources.push(format!("model-config.yaml {}{first}", archive.join(", ")));
    }
    if let [first, ..] = setting.parameter.names {
        let live = if setting.live { " (live too)" } else { "" };
        sources.push(format!("registration `{first}`{live}"));
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = &'static Setting> {
        model::SETTINGS.iter().chain(server::SETTINGS).chain(torchserve::SETTINGS).copied()
    }

    #[test]
    fn no_name_flag_or_key_stands_twice() {
        let lists: [(&str, Vec<&str>); 4] = [
            ("names", all().map(|it| it.name).collect()),
            ("flags", all().filter_map(|it| it.flag).collect()),
            ("properties", all().filter_map(|it| it.property).collect()),
            ("records", all().filter_map(|it| it.record).collect()),
        ];
        for (what, mut names) in lists {
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{what}");
        }
    }

    #[test]
    fn every_default_can_be_read() {
        for setting in all() {
            if let Some(default) = setting.default {
                assert!(setting.kind.parse(default).is_ok(), "{}: {default}", setting.name);
            }
        }
    }

    /// Writes the page anew with `UPDATE_GOLDEN=1`.
    #[test]
    fn the_reference_page_is_made_from_the_declarations() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/settings.md");
        if option_env!("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
            std::fs::write(path, page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == page(),
            "docs/reference/settings.md is not up to date: run UPDATE_GOLDEN=1 cargo test -p jitney-settings"
        );
    }
}
