//! The dashboard's types of the overview are made from the ones here, so that they cannot differ.
//! `UPDATE_GENERATED=1` writes them anew.

#![expect(clippy::disallowed_methods, reason = "a test may ask whether to write what it checks")]

use std::collections::BTreeMap;

use ts_rs::{Config, TS, TypeVisitor};

use super::{OverviewDocument, OverviewHistory};

const COMMAND: &str = "UPDATE_GENERATED=1 cargo test -p jitney-telemetry typescript";

/// Every type that a document is made of, by its name: the order in which they are visited differs from
/// build to build.
struct Declarations {
    config: Config,
    by_name: BTreeMap<String, String>,
}

impl TypeVisitor for Declarations {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // Types of the language itself belong to no file.
        if T::output_path().is_none() {
            return;
        }
        let docs = T::docs().unwrap_or_default();
        let text = tidy(&format!("{docs}export {}\n", T::decl(&self.config)));
        if self.by_name.insert(T::ident(&self.config), text).is_none() {
            T::visit_dependencies(self);
        }
    }
}

/// One line for each comment and each field.
fn tidy(declaration: &str) -> String {
    let short = declaration.replace("/**\n * ", "/** ").replace("\n */", " */");
    let fields = short.replace("{ \n", "{\n").replace(", \n", ";\n").replace(", };", ";\n};");
    let Some((head, body)) = fields.split_once("{\n") else { return fields };
    let fields = body.replace("*/\n", "*/\n  ").replace("\n/**", "\n  /**");
    format!("{head}{{\n  {fields}")
}

fn generated() -> String {
    // JSON's numbers are what they are in JavaScript: none of ours is too large for it.
    let config = Config::new().with_large_int("number");
    let mut all = Declarations { config, by_name: BTreeMap::new() };
    all.visit::<OverviewDocument>();
    all.visit::<OverviewHistory>();
    let head =
        format!("// Made from crates/telemetry/src/overview by `{COMMAND}`; not to be edited.\n\n");
    head + &all.by_name.into_values().collect::<Vec<_>>().join("\n")
}

#[test]
fn the_typescript_of_the_dashboard_is_the_same() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui/src/data/overview.ts");
    let made = generated();
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(path, &made).expect("writes");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == made, "ui/src/data/overview.ts is stale; `{COMMAND}` writes it anew");
}
