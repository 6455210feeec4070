//! What is no HTTP, or HTTP that hopes to be misread.

use crate::fixture::{HttpResponse, Server, ask, raw};

#[tokio::test]
async fn nonsense_is_answered_400_or_dropped_and_the_server_lives() {
    let server = Server::start().await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(300_000));
    let headers = format!("GET /ping HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(500));
    for bytes in [
        "NONSENSE\r\n\r\n",
        "GET /ping\r\n\r\n",
        "GET /ping HTTP/9.9\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "GET /ping HTTP/1.1\r\nbad header\r\n\r\n",
        "POST /ping HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST /ping HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "POST /predictions/x HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}",
        &long,
        &headers,
    ] {
        let head: String = bytes.chars().take(60).collect();
        let answer = raw(server.inference(), bytes.as_bytes()).await;
        let fine = answer.is_empty()
            || answer.starts_with("HTTP/1.1 400 ")
            || answer.starts_with("HTTP/1.1 414 ")
            || answer.starts_with("HTTP/1.1 431 ");
        assert!(fine, "{head:?}: {answer}");
        assert_eq!(ask(server.inference(), "GET", "/ping").await.status, 200, "{head:?}");
    }
}

#[tokio::test]
async fn an_answer_cannot_be_smuggled_in() {
    let server = Server::start().await;
    let two = "POST /ping HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 6\r\n\
        Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /models HTTP/1.1\r\nHost: t\r\n\r\n";
    let answer = raw(server.inference(), two.as_bytes()).await;
    assert!(answer.matches("HTTP/1.1 ").count() <= 1, "{answer}");
}

#[tokio::test]
async fn a_request_has_one_host() {
    let server = Server::start().await;
    for (head, message) in [
        ("GET /ping HTTP/1.1\r\n", "An HTTP/1.1 request needs a Host header."),
        (
            "GET /ping HTTP/1.1\r\nHost: a\r\nHost: a\r\n",
            "A request has one Host header, not several.",
        ),
        (
            "GET /ping HTTP/1.0\r\nHost: a\r\nHost: b\r\n",
            "A request has one Host header, not several.",
        ),
    ] {
        // The connection ends although nobody asked for that, so the second request is not answered.
        let twice = format!("{head}Connection: keep-alive\r\n\r\n").repeat(2);
        for address in [server.inference(), server.management(), server.metrics()] {
            let answer = raw(address, twice.as_bytes()).await;
            assert_eq!(answer.matches(" 400 Bad Request").count(), 1, "{answer}");
            let (status, kind, text) = HttpResponse::parse(&answer).error();
            assert_eq!(
                (status, kind.as_str(), text.as_str()),
                (400, "BadRequestException", message)
            );
        }
    }
    let old = raw(server.inference(), b"GET /ping HTTP/1.0\r\n\r\n").await;
    assert_eq!(HttpResponse::parse(&old).status, 200, "HTTP/1.0 has no Host");
}

#[tokio::test]
async fn odd_paths_are_only_unknown() {
    let server = Server::start().await;
    for path in
        ["/%00", "/%ff%fe", "/predictions/%2e%2e/%2e%2e", "/%", "/a%2", "//", "/../etc", "/?"]
    {
        let status = ask(server.inference(), "GET", path).await.status;
        assert!([404, 405].contains(&status), "{path}: {status}");
    }
}
