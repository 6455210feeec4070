//! The operations of the operator's plugins. A plugin declares a path, its methods and a sentence about
//! them; what it takes and answers is its own affair, so the document promises nothing about it.

use serde_json::{Map, Value, json};

use super::schema::{Operation, any_schema};
use crate::plugins::PluginEndpoint;

/// OpenAPI's methods; a plugin may take others, which the document has no place for.
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// One entry per path, one operation per method. ServerAddresses may coincide, and then paths may too.
pub(super) fn paths<'a>(endpoints: impl Iterator<Item = &'a PluginEndpoint>) -> Map<String, Value> {
    let mut paths = Map::new();
    for endpoint in endpoints {
        let entry = paths.entry(&endpoint.path).or_insert_with(|| json!({}));
        for method in endpoint.methods.iter().map(|method| method.as_str().to_lowercase()) {
            if METHODS.contains(&method.as_str()) {
                entry[&method] = operation(endpoint, &method);
            }
        }
    }
    paths
}

fn operation(endpoint: &PluginEndpoint, method: &str) -> Value {
    let id = format!("{}_{}_{method}", endpoint.plugin(), words(&endpoint.path));
    let usual = format!("Answered by the plugin {}.", endpoint.plugin());
    let said = Some(endpoint.description.as_str()).filter(|said| !said.is_empty());
    let operation = Operation::new(&id, said.unwrap_or(&usual));
    let takes_body = ["post", "put", "patch"].contains(&method);
    let operation = if takes_body { operation.any_body() } else { operation };
    operation
        .answers("200", "The plugin's answer.", "*/*", any_schema())
        .fails(&[
            ("500", "The plugin failed."),
            ("503", "The plugin is away or does not answer in time."),
        ])
        .done()
}

/// A path as part of an operation's id.
fn words(path: &str) -> String {
    let letters = path.trim_matches('/').chars();
    letters.map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}
