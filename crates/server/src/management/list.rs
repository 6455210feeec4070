//! The default versions of all models, in pages.

use jitney_engine::{Engine, Model};
use serde::Serialize;

const LIMIT: i32 = 100;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelPage {
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
    models: Vec<ModelEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelEntry {
    model_name: String,
    model_url: String,
}

/// One page of models, sorted by name.
pub(crate) fn list(engine: &Engine, limit: Option<i32>, start: Option<i32>) -> ModelPage {
    let models = engine.models();
    // A workflow's functions were not registered as models.
    let entries = models.iter().filter(|model| !model.identity().is_function()).map(|it| entry(it));
    page(entries.collect(), limit, start)
}

/// A model as the list has it.
pub(crate) fn entry(model: &Model) -> ModelEntry {
    ModelEntry { model_name: model.name().to_owned(), model_url: model.identity().url.to_string() }
}

fn page(all: Vec<ModelEntry>, limit: Option<i32>, start: Option<i32>) -> ModelPage {
    let (next_page_token, models) = slice(all, limit, start);
    ModelPage { next_page_token, models }
}

/// A page that ends exactly at the last model still has a token, as in TorchServe: clients that
/// follow it meet an empty page.
pub(super) fn slice<T>(
    all: Vec<T>,
    limit: Option<i32>,
    start: Option<i32>,
) -> (Option<String>, Vec<T>) {
    let limit = limit.filter(|limit| (0..=LIMIT).contains(limit)).unwrap_or(LIMIT) as usize;
    let start = start.unwrap_or(0).max(0) as usize;
    let end = start + limit;
    let next_page_token = (end <= all.len()).then(|| end.to_string());
    (next_page_token, all.into_iter().skip(start).take(limit).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::RequestFields;

    fn check(query: &str, names: &str, token: Option<&str>) {
        let entry =
            |name: char| ModelEntry { model_name: name.to_string(), model_url: String::new() };
        let fields = RequestFields::from_query(Some(query));
        let (limit, start) = (fields.integer("limit"), fields.integer("next_page_token"));
        let page = page("abcde".chars().map(entry).collect(), limit, start);
        let found: String = page.models.into_iter().map(|entry| entry.model_name).collect();
        assert_eq!((found.as_str(), page.next_page_token.as_deref()), (names, token), "{query}");
    }

    #[test]
    fn models_are_listed_in_pages() {
        check("", "abcde", None);
        check("limit=2", "ab", Some("2"));
        check("limit=2&next_page_token=2", "cd", Some("4"));
        check("limit=2&next_page_token=4", "e", None);
        check("limit=5", "abcde", Some("5"));
        check("next_page_token=9", "", None);
        check("limit=-3", "abcde", None);
        check("limit=1000", "abcde", None);
        check("limit=x&next_page_token=-1", "abcde", None);
        check("next_page_token=2147483647", "", None);
    }
}
