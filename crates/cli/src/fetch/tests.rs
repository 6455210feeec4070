//! The client against a server of a few lines on a free port.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Answers by path; `{host}` in an answer is the server's own address.
async fn server(answers: &[(&str, &str)]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let address = listener.local_addr().expect("address");
    let own = |text: &str| text.replace("{host}", &address.to_string());
    let answers: BTreeMap<String, String> =
        answers.iter().map(|(path, answer)| ((*path).to_owned(), own(answer))).collect();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            answer(stream, &answers).await;
        }
    });
    address
}

async fn answer(mut stream: TcpStream, answers: &BTreeMap<String, String>) {
    let mut head = vec![0; 4096];
    let read = stream.read(&mut head).await.unwrap_or(0);
    let head = String::from_utf8_lossy(&head[..read]).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let none = "404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned();
    // The connection ends with the answer; a client that is not told may send its next request over it.
    let answer =
        answers.get(path).unwrap_or(&none).replacen("\r\n", "\r\nConnection: close\r\n", 1);
    let _ = stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await;
}

async fn get(rule: UrlRule, url: &str) -> Result<(Option<u64>, String), DownloadError> {
    let web = RemoteFetcher::new(Arc::new(rule), &Env::default(), Handle::current());
    let mut download = web.open(DownloadRequest { url, ..DownloadRequest::default() }).await?;
    let (total, mut text) = (download.bytes_total(), String::new());
    while let Some(piece) = download.next().await? {
        text += &String::from_utf8_lossy(&piece);
    }
    Ok((total, text))
}

fn any() -> UrlRule {
    UrlRule::patterns(".*").expect("reads")
}

const HELLO: &str = "200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[tokio::test]
async fn a_file_comes_with_its_size() {
    let address = server(&[("/a.mar?x=1", HELLO)]).await;
    let got = get(any(), &format!("http://{address}/a.mar?x=1")).await;
    assert_eq!(got, Ok((Some(5), "hello".to_owned())));
}

#[tokio::test]
async fn errors_have_their_cause_and_not_the_url() {
    let cut = "200 OK\r\nContent-Length: 50\r\n\r\nhello";
    let address = server(&[("/cut.mar", cut)]).await;
    for (url, expected) in [
        (format!("http://{address}/none.mar?secret"), "404 Not Found"),
        (format!("http://{address}/cut.mar"), "end of file before message length reached"),
        ("http://127.0.0.1:1/a.mar".to_owned(), "Connection refused"),
        ("http://".to_owned(), "empty host"),
    ] {
        let why = get(any(), &url).await.expect_err(&url).why;
        assert!(why.contains(expected) && !why.contains("secret"), "{url}: {why}");
    }
}

#[tokio::test]
async fn every_redirect_is_checked_against_the_allow_list() {
    let address = server(&[
        ("/good/a.mar", "302 Found\r\nLocation: /good/b.mar\r\nContent-Length: 0\r\n\r\n"),
        ("/good/b.mar", HELLO),
        ("/good/evil.mar", "302 Found\r\nLocation: /bad/b.mar\r\nContent-Length: 0\r\n\r\n"),
        ("/good/round.mar", "302 Found\r\nLocation: /good/round.mar\r\nContent-Length: 0\r\n\r\n"),
        ("/bad/b.mar", HELLO),
    ])
    .await;
    let at = |path: &str| format!("http://{address}{path}");
    let rule = || UrlRule::patterns("http://[^/]*/good/.*").expect("reads");
    assert!(get(rule(), &at("/good/a.mar")).await.is_ok());
    let why = get(rule(), &at("/good/evil.mar")).await.expect_err("refused").why;
    assert!(why.contains("it redirects to a URL that is not allowed"), "{why}");
    let why = get(rule(), &at("/good/round.mar")).await.expect_err("refused").why;
    assert!(why.contains("it redirects too often"), "{why}");
    let named = UrlRule::named([at("/good/evil.mar").as_str()]);
    assert!(get(named, &at("/good/evil.mar")).await.is_ok(), "the operator named it");
}
