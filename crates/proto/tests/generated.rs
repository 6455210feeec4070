//! The checked-in code is what the `.proto` files say. `UPDATE_GENERATED=1` writes it anew.

#![expect(clippy::disallowed_methods, reason = "a test may ask whether to write what it checks")]

use std::path::{Path, PathBuf};

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
    check("openinference.rs", generate("openinference.proto", builder()).as_bytes());
    let kserve = builder().extern_path(".inference", "crate::openinference");
    check("kserve.rs", generate("kserve.proto", kserve).as_bytes());
}

#[test]
fn the_descriptors_are_what_the_files_say() {
    let mut compiler = protox::Compiler::new([here("proto")]).expect("a directory");
    let compiled = compiler.include_imports(true).open_files(FILES).expect("the files are sound");
    check("descriptors.bin", &compiled.file_descriptor_set().encode_to_vec());
}

#[test]
fn both_packages_of_the_protocol_have_the_same_messages() {
    let body = |file: &str| {
        let text = std::fs::read_to_string(here("proto").join(file)).expect("text");
        let (_, body) = text.split_once("\nmessage ").expect("messages");
        body.to_owned()
    };
    assert_eq!(body("openinference.proto"), body("kserve.proto"));
}
