//! The store can read what the archiver writes.

use std::path::PathBuf;

use jitney_engine::store::{Limits, Package, Store, StoreConfig};

use super::*;
use crate::flags::archive::HandlerRuntime;

/// A directory with the pieces of a model.
struct TestFiles(tempfile::TempDir);

impl TestFiles {
    fn new() -> Self {
        let dir = Self(tempfile::tempdir().expect("directory"));
        for (name, text) in [
            ("handler.py", "def handle(data, context): ...\n"),
            ("sub/net.py", "class Net: ...\n"),
            ("weights.pt", "weights"),
            ("reqs.txt", "requests\n"),
            ("conf.yaml", "batchSize: 4\n"),
            ("extra/top.txt", "t"),
            ("extra/deep/low.txt", "l"),
            ("extra/__pycache__/x.pyc", ""),
            ("extra/.git/config", ""),
            ("one.json", "1"),
            ("two.json", "2"),
        ] {
            let path = dir.at(name);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            std::fs::write(path, text).expect("file");
        }
        dir
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    fn flags(&self) -> ArchiveFlags {
        ArchiveFlags {
            model_name: "mod".to_owned(),
            version: "1.5".to_owned(),
            handler: self.text("handler.py"),
            serialized_file: None,
            model_file: None,
            extra_files: None,
            runtime: HandlerRuntime::Python,
            export_path: self.at("out/new"),
            archive_format: PackFormat::Default,
            force: false,
            requirements_file: None,
            config_file: None,
        }
    }

    /// Archives and reads back.
    fn round_trip(&self, flags: &ArchiveFlags, file: &str) -> Package {
        archive_model(flags, SystemTime::now()).expect("archives");
        let store = Store::new(StoreConfig {
            model_store: Some(self.at("out/new")),
            scratch: self.at("scratch"),
            cache: None,
            limits: Limits::default(),
            url_allowed: Box::new(|_| false),
            remote: None,
        });
        store.open(file, store.find(file, false).expect("finds")).expect("opens")
    }

    fn failure(&self, flags: &ArchiveFlags) -> String {
        let failure = archive_model(flags, SystemTime::now()).expect_err("an error");
        assert_eq!(failure.code, 1);
        assert!(!self.at("out/new/mod.mar").exists());
        failure.message
    }
}

fn files(package: &Package) -> Vec<String> {
    fn walk(dir: &Path, prefix: &str, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).expect("reads") {
            let path = entry.expect("entry").path();
            let name = format!("{prefix}{}", path.file_name().expect("name").display());
            if path.is_dir() { walk(&path, &format!("{name}/"), names) } else { names.push(name) }
        }
    }
    let mut names = Vec::new();
    walk(package.dir.path(), "", &mut names);
    names.sort();
    names
}

#[test]
fn every_format_holds_the_same_files_and_manifest() {
    for (format, file) in [
        (PackFormat::Default, "mod.mar"),
        (PackFormat::ZipStore, "mod.mar"),
        (PackFormat::Tgz, "mod.tar.gz"),
        (PackFormat::NoArchive, "mod"),
    ] {
        let dir = TestFiles::new();
        let flags = ArchiveFlags {
            archive_format: format,
            model_file: Some(dir.at("sub/net.py")),
            serialized_file: Some(dir.at("weights.pt")),
            requirements_file: Some(dir.at("reqs.txt")),
            config_file: Some(dir.at("conf.yaml")),
            extra_files: Some(format!("{}, {}", dir.text("extra"), dir.text("*.json"))),
            ..dir.flags()
        };
        let package = dir.round_trip(&flags, file);
        let expected = [
            "MAR-INF/MANIFEST.json",
            "conf.yaml",
            "deep/low.txt",
            "handler.py",
            "net.py",
            "one.json",
            "reqs.txt",
            "top.txt",
            "two.json",
            "weights.pt",
        ];
        assert_eq!(files(&package), expected, "{format:?}");
        let manifest = &package.manifest;
        assert_eq!(manifest.model_name.as_deref(), Some("mod"));
        assert_eq!((manifest.version(), manifest.handler.as_deref()), ("1.5", Some("handler.py")));
        assert_eq!(manifest.config_file.as_deref(), Some("conf.yaml"));
        assert_eq!(package.settings.read(&jitney_settings::model::MAX_BATCH_SIZE), Some(4_u32));
        assert_eq!(package.manifest_json["model"]["serializedFile"], "weights.pt");
        assert_eq!(package.manifest_json["archiverVersion"], "0.12.0");
    }
}

#[test]
fn a_stock_handler_is_named_and_not_copied() {
    let dir = TestFiles::new();
    let flags = ArchiveFlags { handler: "image_classifier".to_owned(), ..dir.flags() };
    let package = dir.round_trip(&flags, "mod.mar");
    assert_eq!(files(&package), ["MAR-INF/MANIFEST.json"]);
    assert_eq!(package.manifest.handler.as_deref(), Some("image_classifier"));
}

#[test]
fn an_output_that_exists_is_replaced_only_by_force() {
    for format in [PackFormat::Default, PackFormat::Tgz, PackFormat::NoArchive] {
        let dir = TestFiles::new();
        let flags = ArchiveFlags { archive_format: format, ..dir.flags() };
        archive_model(&flags, SystemTime::now()).expect("archives");
        let failure = archive_model(&flags, SystemTime::now()).expect_err("an error");
        assert!(failure.message.contains("already exists.\nPlease specify --force/-f"));
        archive_model(&ArchiveFlags { force: true, ..flags }, SystemTime::now()).expect("replaces");
        let left = std::fs::read_dir(dir.at("out/new")).expect("reads").count();
        assert_eq!(left, 1, "{format:?}: nothing temporary is left");
    }
}

#[test]
fn names_outside_the_rule_are_errors() {
    let dir = TestFiles::new();
    for name in ["has space", "-dash", "a/b", "ünï", "", ".dot", "line\n"] {
        let message = dir.failure(&ArchiveFlags { model_name: name.to_owned(), ..dir.flags() });
        assert!(message.contains("model name"), "{message}");
    }
}

#[test]
fn a_missing_file_is_named_with_its_flag() {
    let dir = TestFiles::new();
    let missing = || Some(PathBuf::from("no.pt"));
    for (flags, expected) in [
        (ArchiveFlags { serialized_file: missing(), ..dir.flags() }, "--serialized-file"),
        (ArchiveFlags { model_file: missing(), ..dir.flags() }, "--model-file"),
        (ArchiveFlags { requirements_file: missing(), ..dir.flags() }, "--requirements-file"),
        (ArchiveFlags { config_file: missing(), ..dir.flags() }, "--config-file"),
        (ArchiveFlags { extra_files: Some("no.pt".into()), ..dir.flags() }, "--extra-files"),
        (ArchiveFlags { handler: "no.pt".into(), ..dir.flags() }, "--handler"),
    ] {
        let message = dir.failure(&flags);
        assert!(message.contains(&format!("{expected} file not found: no.pt")), "{message}");
    }
}

#[test]
fn a_workflow_needs_an_existing_directory() {
    let dir = TestFiles::new();
    let flags = ArchiveWorkflowFlags {
        workflow_name: "flow".to_owned(),
        spec_file: dir.at("conf.yaml"),
        handler: Some(dir.text("handler.py")),
        extra_files: Some(dir.text("extra")),
        export_path: dir.at("nowhere"),
        force: false,
    };
    let failure = archive_workflow(&flags, SystemTime::now()).expect_err("an error");
    assert!(failure.message.contains("--export-path is not a directory"), "{failure}");
    let flags = ArchiveWorkflowFlags { export_path: dir.at(""), ..flags };
    archive_workflow(&flags, SystemTime::now()).expect("archives");
    let file = std::fs::File::open(dir.at("flow.war")).expect("written");
    let zip = zip::ZipArchive::new(file).expect("a zip");
    let names: Vec<_> = zip.file_names().filter_map(Result::ok).collect();
    for name in ["WAR-INF/MANIFEST.json", "conf.yaml", "handler.py", "top.txt", "deep/low.txt"] {
        assert!(names.iter().any(|there| there == name), "{name}: {names:?}");
    }
}
