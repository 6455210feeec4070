//! The checked-in code is what the `.proto` files say. `UPDATE_GENERATED=1` writes it anew.

#![expect(clippy::disallowed_methods, reason = "a test may ask whether to write what it checks")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prost_types::{DescriptorProto, FieldDescriptorProto};
use protox::prost::Message as _;
use tonic_prost_build::Builder;

const FILES: [&str; 5] = [
    "google/rpc/status.proto",
    "inference.proto",
    "management.proto",
    "openinference.proto",
    "kserve.proto",
];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// One module per package. Messages of another module are named by its path instead of made again.
fn builder() -> Builder {
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        .btree_map(".")
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .emit_rerun_if_changed(false)
}

fn generate(file: &str, builder: Builder) -> String {
    let descriptors = protox::compile([file], [here("proto")]).expect("the file is sound");
    let out = tempfile::tempdir().expect("a directory");
    builder.out_dir(out.path()).compile_fds(descriptors).expect("code is made");
    let made: Vec<_> = std::fs::read_dir(out.path()).expect("reads").flatten().collect();
    let [made] = made.as_slice() else { panic!("{file}: not one module but {made:?}") };
    let code = std::fs::read_to_string(made.path()).expect("text");
    format!(
        "//! Made from `proto/{file}` by `UPDATE_GENERATED=1 cargo test -p jitney-proto`; not to be edited.\n{code}"
    )
}

fn check(name: &str, made: &[u8]) {
    let path = here("src/generated").join(name);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, made).expect("writes");
    }
    let kept = std::fs::read(&path).unwrap_or_default();
    assert!(kept == made, "{} is stale; UPDATE_GENERATED=1 writes it anew", path.display());
}

#[test]
fn the_code_is_what_the_files_say() {
    let status = "google/rpc/status.proto";
    check("status.rs", generate(status, builder()).as_bytes());
    let inference = builder().extern_path(".google.rpc", "crate::status");
    check("inference.rs", generate("inference.proto", inference).as_bytes());
    check("management.rs", generate("management.proto", builder()).as_bytes());
    check("kserve.rs", generate("kserve.proto", builder()).as_bytes());
    check("otlp.rs", generate("otlp.proto", builder()).as_bytes());
    let openinference =
        builder().extern_path(".org.pytorch.serve.grpc.openinference", "crate::kserve");
    check("openinference.rs", generate("openinference.proto", openinference).as_bytes());
    // No service has this one, so that the descriptors do without it.
    check("prometheus.rs", generate("prometheus.proto", builder()).as_bytes());
}

#[test]
fn the_descriptors_are_what_the_files_say() {
    let mut compiler = protox::Compiler::new([here("proto")]).expect("a directory");
    let compiled = compiler.include_imports(true).open_files(FILES).expect("the files are sound");
    check("descriptors.bin", &compiled.file_descriptor_set().encode_to_vec());
}

/// The messages of a file: full names without the package, and their fields in the order of their numbers.
fn messages(file: &str) -> BTreeMap<String, Vec<FieldDescriptorProto>> {
    fn add(
        of: DescriptorProto,
        before: &str,
        all: &mut BTreeMap<String, Vec<FieldDescriptorProto>>,
    ) {
        let name = format!("{before}{}", of.name());
        for nested in of.nested_type {
            add(nested, &format!("{name}."), all);
        }
        let mut fields = of.field;
        fields.sort_by_key(|field| field.number());
        all.insert(name, fields);
    }
    let compiled = protox::compile([file], [here("proto")]).expect("the file is sound");
    let compiled = compiled.file.into_iter().find(|it| it.name() == file).expect("the file");
    let (mut all, package) = (BTreeMap::new(), format!(".{}.", compiled.package()));
    for message in compiled.message_type {
        add(message, "", &mut all);
    }
    for field in all.values_mut().flatten() {
        field.type_name = field.type_name.take().map(|name| name.replace(&package, ""));
    }
    all
}

/// The code of one package serves both.
#[test]
fn the_messages_of_one_package_are_among_the_others() {
    let all = messages("kserve.proto");
    for (name, fields) in messages("openinference.proto") {
        let known = all.get(&name).map(Vec::as_slice).unwrap_or_default();
        assert!(known.starts_with(&fields), "{name}: {fields:?} is not in {known:?}");
    }
}
