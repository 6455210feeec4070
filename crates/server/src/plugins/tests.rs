//! The offers and verdicts of plugins, and what the server makes of them.

use super::description::{read, verdict};
use super::*;

#[test]
fn only_a_plain_yes_lets_a_request_pass() {
    assert_eq!(verdict(br#"{"allow": true}"#), Some(Ok(None)));
    assert_eq!(verdict(br#"{"allow": true, "tenant": null}"#), Some(Ok(None)));
    assert_eq!(verdict(br#"{"allow": true, "tenant": "gold"}"#), Some(Ok(Some("gold".into()))));
    let no = (401, "who are you?".to_owned());
    let json = br#"{"allow": false, "status": 401, "message": "who are you?"}"#;
    assert_eq!(verdict(json), Some(Err(no)));
    for unclear in [
        &b""[..],
        b"true",
        b"{}",
        br#"{"allow": 1}"#,
        br#"{"allow": "true"}"#,
        br#"{"allow": false}"#,
        br#"{"allow": false, "status": 200}"#,
        b"null",
        br#"{"allow": true, "tenant": ""}"#,
        br#"{"allow": true, "tenant": 7}"#,
        br#"{"allow": true, "tenant": "two\nlines"}"#,
    ] {
        assert_eq!(verdict(unclear), None, "{}", String::from_utf8_lossy(unclear));
    }
}

#[test]
fn an_offer_is_read_strictly() {
    let json = br#"{"endpoints": [{"path": "/a", "methods": ["GET", "PUT"], "listener": "management"}], "authorize": true}"#;
    let offer = read(json).expect("reads");
    assert!(offer.authorize);
    assert_eq!(offer.endpoints[0].methods, [Method::GET, Method::PUT]);
    assert_eq!(offer.endpoints[0].listener, ApiKind::Management);
    for bad in [
        r#"{"endpoints": []}"#,
        r#"{"endpoints": [{"path": "/a", "methods": ["A B"], "listener": "inference"}], "authorize": false}"#,
        r#"{"endpoints": [{"path": "/a", "methods": [], "listener": "metrics"}], "authorize": false}"#,
    ] {
        assert!(read(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn complaints_say_what_to_change() {
    let (plugin, path) = ("b".to_owned(), "/x".to_owned());
    for (error, text) in [
        (PluginError::PathTaken { plugin: plugin.clone(), path: path.clone() }, "choose another"),
        (PluginError::PathTwice { plugin: plugin.clone(), path }, "declared once"),
        (PluginError::TwoAuthorizers { first: "a".to_owned(), second: plugin }, "leave one"),
    ] {
        assert!(error.to_string().contains(text), "{error}");
    }
}
