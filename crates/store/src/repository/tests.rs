//! What a directory is taken for.

use super::*;

struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let files_of = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(file, text)| files_of.write(file, text));
        files_of
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn models(&self) -> Vec<RepositoryModel> {
        models_of(self.0.path()).unwrap()
    }

    /// What is served of the only model: paths by version.
    fn versions(&self) -> Result<Vec<(Option<String>, String)>, String> {
        let model = self.models().remove(0);
        let root = self.0.path();
        let shown = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
        let versions =
            model.content.map_err(|why| why.replace(&format!("{}/", root.display()), ""))?.versions;
        Ok(versions.into_iter().map(|it| (it.number, shown(&it.path))).collect())
    }
}

fn numbered(pairs: &[(&str, &str)]) -> Result<Vec<(Option<String>, String)>, String> {
    Ok(pairs
        .iter()
        .map(|(number, path)| (Some((*number).to_owned()), (*path).to_owned()))
        .collect())
}

#[test]
fn names_come_from_folders_and_files() {
    let files = Files::new(&[
        ("add/1/model.onnx", ""),
        ("digits.onnx", ""),
        ("digits.yaml", ""),
        ("bert.mar", ""),
        ("shout/MAR-INF/MANIFEST.json", "{}"),
        ("plain/model.onnx", ""),
        (".hidden/1/model.onnx", ""),
        ("notes.txt", ""),
        ("empty/readme", ""),
    ]);
    let models = files.models();
    let names: Vec<_> = models.iter().map(|it| (it.name.as_str(), it.content.is_ok())).collect();
    let expected = [
        ("add", true),
        ("bert", true),
        ("digits", true),
        ("empty", false),
        ("plain", true),
        ("shout", true),
    ];
    assert_eq!(names, expected);
    let shout = files.0.path().join("shout");
    assert!(is_repository(files.0.path(), false));
    assert!(!is_repository(&shout, false) && !is_repository(&shout, true));
    let lone = Files::new(&[("one/MAR-INF/MANIFEST.json", "{}")]);
    assert!(!is_repository(lone.0.path(), false), "it wraps a model");
    assert!(is_repository(lone.0.path(), true), "others may come");
}

#[test]
fn the_version_policy_chooses_numbered_folders() {
    let all = [
        ("m/1/model.onnx", ""),
        ("m/2/model.onnx", ""),
        ("m/10/model.onnx", ""),
        ("m/010/model.onnx", ""),
        ("m/notes/model.onnx", ""),
    ];
    let files = Files::new(&all);
    assert_eq!(files.versions(), numbered(&[("10", "m/10/model.onnx")]));
    files.write("m/config.pbtxt", "version_policy { latest { num_versions: 2 } }");
    assert_eq!(files.versions(), numbered(&[("2", "m/2/model.onnx"), ("10", "m/10/model.onnx")]));
    files.write("m/config.pbtxt", "version_policy { all {} }");
    assert_eq!(files.versions().unwrap().len(), 3);
    files.write("m/config.pbtxt", "version_policy { specific { versions: 3 } }");
    assert_eq!(files.versions(), Err("version 3 has no folder in m".to_owned()));
}

#[test]
fn the_file_may_have_another_name_or_be_of_another_kind() {
    let files = Files::new(&[("m/1/net.onnx", ""), ("m/1/model.onnx", "")]);
    files.write("m/config.pbtxt", "default_model_filename: \"net.onnx\"");
    assert_eq!(files.versions(), numbered(&[("1", "m/1/net.onnx")]));
    let one = Files::new(&[("m/1/only.mar", "")]);
    assert_eq!(one.versions(), numbered(&[("1", "m/1/only.mar")]));
    let weights = Files::new(&[("m/1/model.onnx/model.onnx", ""), ("m/1/model.onnx/w", "")]);
    assert_eq!(weights.versions(), numbered(&[("1", "m/1/model.onnx/model.onnx")]));
    let saved = Files::new(&[("m/1/model.savedmodel/saved_model.pb", "")]);
    let why = "m/1/model.onnx is not there, and model.savedmodel is of a kind that is not served";
    assert_eq!(saved.versions(), Err(why.to_owned()));
}

#[test]
fn a_version_of_another_format_is_for_the_loaders() {
    for files in [
        &["m/1/model.pt2"][..],
        &["m/1/model.joblib"],
        &["m/1/model.xml", "m/1/model.bin"],
        &["m/1/MLmodel", "m/1/data/model.ubj"],
        &["m/1/config.json", "m/1/1_Pooling/config.json"],
    ] {
        let files = Files::new(&files.iter().map(|file| (*file, "")).collect::<Vec<_>>());
        assert_eq!(files.versions(), numbered(&[("1", "m/1")]));
    }
    let files = Files::new(&[("m/1/trees.ubj", ""), ("m/1/notes.md", "")]);
    files.write(
        "m/config.pbtxt",
        "backend: \"fil\" default_model_filename: \"trees.ubj\" input { name: \"x\" }",
    );
    assert_eq!(files.versions(), numbered(&[("1", "m/1/trees.ubj")]));
    let content = files.models().remove(0).content.unwrap();
    assert!(content.whole && !content.settings.has(&MAX_BATCH_SIZE), "its tensors say that");
}

#[test]
fn an_error_names_file_and_line() {
    let files = Files::new(&[("m/1/model.onnx", ""), ("m/config.pbtxt", "\n\nbatch_input { }")]);
    let why = "m/config.pbtxt:3: batch_input is not supported";
    assert_eq!(files.versions(), Err(why.to_owned()));
}

#[test]
fn labels_are_read() {
    let config = "output { name: \"y\" label_filename: \"labels.txt\" }";
    let files = Files::new(&[
        ("m/1/model.onnx", ""),
        ("m/config.pbtxt", config),
        ("m/labels.txt", "cat\ndog\n"),
    ]);
    let content = files.models().remove(0).content.unwrap();
    assert_eq!(content.labels["y"], ["cat", "dog"]);
}

#[test]
fn a_folder_of_one_model_is_a_repository_of_it() {
    let files = Files::new(&[("m/1/model.onnx", "")]);
    let models = models_of(&files.0.path().join("m")).unwrap();
    assert_eq!((models.len(), models[0].name.as_str()), (1, "m"));
}

#[test]
fn the_stamp_changes_with_the_files_of_the_model_only() {
    let files = Files::new(&[
        ("m/1/model.onnx", "a"),
        ("m/2/model.onnx", "b"),
        ("n.onnx", "c"),
        ("n.yaml", ""),
    ]);
    files.write("m/config.pbtxt", "version_policy { all {} }");
    let stamps = |files: &Files| {
        let models = files.models();
        let versions = models[0].content.as_ref().unwrap().versions.iter().map(|it| it.stamp);
        (models[0].stamp, versions.collect::<Vec<_>>(), models[1].stamp)
    };
    let before = stamps(&files);
    assert_eq!(before, stamps(&files));
    files.write("m/2/model.onnx", "longer");
    let after = stamps(&files);
    assert!(after.0 != before.0 && after.1[0] == before.1[0] && after.1[1] != before.1[1]);
    assert_eq!(after.2, before.2);
    files.write("n.yaml", "name: n");
    assert_ne!(stamps(&files).2, before.2, "the card belongs to the model");
}

#[test]
fn a_name_goes_to_the_one_model_of_a_folder() {
    let served = |files: &[(&str, &str)]| {
        let files = Files::new(files);
        let model = model_named("shop", files.0.path()).unwrap();
        let versions = |content: RepositoryContent| {
            let paths = content.versions.into_iter().map(|it| it.path);
            Vec::from_iter(
                paths.map(|path| path.strip_prefix(files.0.path()).unwrap().display().to_string()),
            )
        };
        let root = format!("{} ", files.0.path().display());
        (model.name, model.content.map(versions).map_err(|why| why.replace(&root, "")))
    };
    for (files, expected) in [
        (&["model.onnx"][..], Ok(&["model.onnx"][..])),
        (&["model.onnx", "model.yaml", "tokenizer/vocab.txt"], Ok(&["model.onnx"])),
        (&["model.onnx", "tokenizer/config.json"], Ok(&["model.onnx"])),
        (&["texts/config.json"], Ok(&["texts"])),
        (&["1/model.onnx", "2/model.onnx"], Ok(&["2/model.onnx"])),
        (&["net/1/model.onnx"], Ok(&["net/1/model.onnx"])),
        (&["config/config.properties", "model-store/bert.mar"], Ok(&["model-store/bert.mar"])),
        (&["a.onnx", "b.mar"], Err("must hold one model to be served as \"shop\"; it holds a, b")),
        (&["notes.txt"], Err("must hold one model to be served as \"shop\"; it holds no model")),
    ] {
        let files: Vec<_> = files.iter().map(|file| (*file, "")).collect();
        let expected = expected.map(|it| it.iter().map(|path| (*path).to_owned()).collect());
        assert_eq!(served(&files), ("shop".to_owned(), expected.map_err(str::to_owned)));
    }
}

#[test]
fn archives_of_torchserves_layout_keep_their_names() {
    let files = Files::new(&[
        ("config/config.properties", "batch_size=8"),
        ("model-store/bert.mar", ""),
        ("model-store/mnist.mar", ""),
    ]);
    let models = files.models();
    let names: Vec<_> = models.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["bert", "mnist"]);
    let remarks = &models[0].content.as_ref().unwrap().remarks;
    assert_eq!(remarks[0], "it is not read; `jitney torchserve --ts-config` reads it");
}

#[test]
fn a_model_of_the_python_backend_is_the_folder_of_its_version() {
    let files = Files::new(&[("shop/3/model.py", "")]);
    assert_eq!(files.versions(), numbered(&[("3", "shop/3")]));
    files.write(
        "shop/config.pbtxt",
        r#"backend: "python" max_batch_size: 4 parameters { key: "a" value { string_value: "b" } }
           input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] allow_ragged_batch: true } ]
           output [ { name: "y" data_type: TYPE_STRING dims: [ -1 ] } ]
           model_transaction_policy { decoupled: True }"#,
    );
    let python = files.models().remove(0).content.unwrap().python.unwrap();
    let told = &python.settings["triton"];
    assert_eq!(told["parameters"]["a"]["string_value"], "b");
    assert_eq!((&told["input"][0]["dims"][0], &told["max_batch_size"]), (&2.into(), &4.into()));
    assert_eq!(told["model_transaction_policy"]["decoupled"], true);
    let tensors = &python.api.tensors["predict"];
    assert_eq!((&tensors.inputs[0].shape[..], tensors.inputs[0].rows), (&[-1, 2][..], false));
    assert_eq!(tensors.outputs[0].datatype, "BYTES");
    files.write("shop/config.pbtxt", r#"backend: "python" default_model_filename: "other.py""#);
    assert_eq!(files.versions(), Err("shop/3/other.py is not there".to_owned()));
    files.write("shop/config.pbtxt", r#"backend: "python" input { name: "x" dims: 1 }"#);
    let why = "shop/config.pbtxt:1: \"x\" has no data_type".to_owned();
    assert_eq!(files.versions(), Err(why));
    files.write(
        "shop/config.pbtxt",
        "backend: \"onnxruntime\"\nmodel_transaction_policy { decoupled: true }",
    );
    let why = "shop/config.pbtxt:2: only models of the Python backend can be decoupled".to_owned();
    assert_eq!(files.versions(), Err(why));
}
