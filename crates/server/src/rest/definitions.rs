//! The API of models that describe themselves: one OpenAPI document for all of them, and a page on
//! which a person can try it. The page is a single file that loads nothing from elsewhere.

use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use crate::listener::RequestContext;
use crate::respond::{self, HttpResponse};

const PAGE: &[u8] = include_bytes!("docs.html");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
     img-src blob: data:",
);

/// The OpenAPI document of every model that has one.
pub(crate) fn document(context: &RequestContext<'_>) -> HttpResponse {
    let mut paths = Map::new();
    for model in context.state.engine.models() {
        let own = model.api().map(|api| renamed(&api.paths, model.name())).unwrap_or_default();
        paths.extend(own);
    }
    let document = json!({
        "openapi": "3.0.1",
        "info": { "title": "Models served by Jitney", "version": "1.0.0" },
        "paths": paths,
    });
    respond::json(StatusCode::OK, &document)
}

/// The paths under the name that the model is really served as.
fn renamed(paths: &Map<String, Value>, name: &str) -> Map<String, Value> {
    let under = |path: &str| match path.trim_start_matches('/').split_once('/') {
        Some((_, endpoint)) => format!("/{name}/{endpoint}"),
        None => format!("/{name}"),
    };
    paths.iter().map(|(path, item)| (under(path), item.clone())).collect()
}

/// The page.
pub(crate) fn page() -> HttpResponse {
    let mut reply = respond::plain(StatusCode::OK, Bytes::from_static(PAGE));
    reply.headers_mut().insert(CONTENT_TYPE, HTML);
    reply.headers_mut().insert(CONTENT_SECURITY_POLICY, POLICY);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_the_name_that_a_model_is_served_under() {
        let paths = Map::from_iter([("/a".to_owned(), json!(1)), ("/a/b".to_owned(), json!(2))]);
        let names: Vec<_> = renamed(&paths, "z").into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["/z", "/z/b"]);
    }

    #[test]
    fn the_page_loads_nothing_from_elsewhere() {
        let text = std::str::from_utf8(PAGE).expect("text");
        assert!(!text.contains("http://") && !text.contains("https://") && !text.contains("src="));
    }
}
