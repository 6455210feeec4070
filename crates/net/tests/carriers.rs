//! Each carrier over a real socket, with a service that knows no model: what it is told of a request, and
//! what the client gets, are the same whichever way the bytes took.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, PRAGMA, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jitney_memory::admission::Admission;
use jitney_net::connection::{ConnectionStage, ListenerSignal, Peer};
use jitney_net::http::{Answered, DefaultHeaders, HeadError, HttpClient, HttpRules, HttpService};
use jitney_net::open_connections::OpenConnections;
use jitney_net::request_id::XRequestId;
use jitney_net::{
    BodyError, ConnectionService, Listener, RequestBody, ResponseBody, accept, listen,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The largest body.
const BODY_MAX: u64 = 1 << 20;

/// Answers with what came.
struct Echo {
    rules: HttpRules,
    admission: Arc<Admission>,
    late: Arc<LateAnswer>,
}

/// The answer to `/late`, which reads no body: its second piece comes when it is told to.
#[derive(Default)]
struct LateAnswer {
    asked: AtomicUsize,
    go_on: Notify,
}

impl LateAnswer {
    fn answer(self: &Arc<Self>) -> ResponseBody {
        let late = Arc::clone(self);
        let mut told = Box::pin(async move { late.go_on.notified().await });
        let late = Arc::clone(self);
        let rest = futures_util::stream::once(std::future::poll_fn(move |context| {
            late.asked.fetch_add(1, Ordering::Relaxed);
            told.as_mut().poll(context).map(|()| Ok(Bytes::from("late ")))
        }));
        ResponseBody::pieces(Bytes::from("early "), rest)
    }
}

impl Echo {
    async fn reply(
        &self,
        client: &HttpClient<'_, OnUpgrade>,
        parts: &Parts,
        body: Result<RequestBody, HeadError>,
    ) -> Result<Response<ResponseBody>, String> {
        if let Some(upgrade) = parts.extensions.get::<OnUpgrade>()
            && parts.headers.contains_key(UPGRADE)
        {
            client.upgrade.set(upgrade.clone()).map_err(|_| "there is one already")?;
            let mut reply = Response::new(ResponseBody::whole(Bytes::new()));
            *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
            reply.headers_mut().insert(UPGRADE, HeaderValue::from_static("echo"));
            return Ok(reply);
        }
        if parts.uri.path() == "/late" {
            return Ok(Response::new(self.late.answer()));
        }
        let body = body.map_err(|error| error.to_string())?;
        if body.occupies_connection() {
            client.peer.enter(ConnectionStage::Body);
        }
        let read = body.read(BODY_MAX, &self.admission, None).await;
        let body = read.map_err(|error: BodyError| error.to_string())?.into_whole();
        let first = Bytes::from(format!("{} {} ", parts.method, parts.uri));
        Ok(Response::new(match parts.uri.query() {
            Some("pieces") => {
                let rest = futures_util::stream::iter([Ok(body)]);
                ResponseBody::pieces(first, rest)
            }
            _ => ResponseBody::whole([&first[..], &body].concat().into()),
        }))
    }
}

impl HttpService for Echo {
    type Upgrade = OnUpgrade;

    async fn answer(
        &self,
        client: &HttpClient<'_, OnUpgrade>,
        parts: &Parts,
        body: Result<RequestBody, HeadError>,
    ) -> Answered {
        let reply = self.reply(client, parts, body).await;
        let reply =
            reply.unwrap_or_else(|error| Response::new(ResponseBody::whole(Bytes::from(error))));
        let last = parts.uri.path() == "/last";
        Answered { reply, id: XRequestId::fresh(), at: Instant::now(), last }
    }

    fn rules(&self) -> &HttpRules {
        &self.rules
    }

    fn malformed(status: u16) -> Response<ResponseBody> {
        Response::new(ResponseBody::whole(Bytes::from(format!("no HTTP: {status}"))))
    }
}

impl ConnectionService for Echo {
    async fn serve<S>(
        self: Arc<Self>,
        stream: S,
        peer: Arc<Peer>,
        mut signals: watch::Receiver<ListenerSignal>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let upgrade = OnceLock::new();
        let client = HttpClient { peer: &peer, upgrade: &upgrade };
        jitney_net::http::serve(stream, &self, &client, &mut signals).await;
        if let Some(upgrade) = upgrade.into_inner() {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        }
    }

    fn protocols(&self) -> &'static [&'static [u8]] {
        &[b"h2", b"http/1.1"]
    }

    fn drains(&self) -> bool {
        false
    }

    fn https_only(&self) -> Response<ResponseBody> {
        Response::new(ResponseBody::whole(Bytes::new()))
    }
}

/// A server that echoes, until it is dropped.
struct Server {
    address: SocketAddr,
    late: Arc<LateAnswer>,
    end: Option<oneshot::Sender<()>>,
    served: JoinHandle<std::io::Result<()>>,
}

impl Server {
    fn start() -> Self {
        Self::with_patience(Duration::from_secs(60))
    }

    /// One whose clients may send nothing of a body for so long.
    fn with_patience(head_timeout: Duration) -> Self {
        let admission = Admission::new(Default::default());
        let header = (PRAGMA, HeaderValue::from_static("no-cache"));
        let headers = DefaultHeaders::new(vec![header], Vec::new());
        let rules = HttpRules { headers, decompress: true, patience: Duration::from_secs(60) };
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let late = Arc::<LateAnswer>::default();
        let echo = Echo { rules, admission: Arc::clone(&admission), late: Arc::clone(&late) };
        let listener = Listener {
            service: Arc::new(echo),
            open: OpenConnections::new(8, Duration::MAX),
            admission,
            next_number: Arc::new(AtomicU64::new(1)),
            tls: None,
            head_timeout,
            shutdown_grace: Duration::from_secs(60),
        };
        let (end, ended) = oneshot::channel();
        let ended = async { drop(ended.await) };
        let socket = listen::ListenSocket::Tcp(socket);
        let served =
            tokio::spawn(accept::serve(socket, Arc::new(listener), watch::channel(false).1, ended));
        Self { address, late, end: Some(end), served }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Everything that comes back until the server ends the connection.
    async fn raw(&self, sent: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    async fn end(mut self) {
        drop(self.end.take());
        self.served.await.unwrap().unwrap();
    }
}

/// What a client reads, without what differs from answer to answer.
fn shown(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.split("\r\n").map(str::to_lowercase).collect();
    lines.retain(|line| !line.starts_with("x-request-id: ") && !line.starts_with("date: "));
    lines.sort();
    lines
}

#[tokio::test]
async fn both_carriers_of_http_1_write_the_same() {
    let server = Server::start();
    for path in ["/a%20b?c=d", "/?pieces", "/last"] {
        let plain = format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
        );
        // Trailers are nothing for the carrier of plain requests.
        let other = plain.replace("\r\n\r\n", "\r\nTE: trailers\r\n\r\n");
        let (plain, other) = (server.raw(&plain).await, server.raw(&other).await);
        assert!(plain.starts_with("HTTP/1.1 200 OK\r\n"), "{plain}");
        assert!(plain.contains("Pragma: no-cache\r\n"), "{plain}");
        assert!(plain.contains(&format!("POST {path} ")) && plain.contains("abc"), "{plain}");
        assert_eq!(shown(&plain), shown(&other));
    }
    server.end().await;
}

#[tokio::test]
async fn a_large_body_comes_whole_and_the_next_request_after_it() {
    let server = Server::start();
    let body: String = (0..BODY_MAX / 8).map(|number| format!("{number:08}")).collect();
    let next = "GET /next HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    for header in ["", "TE: trailers\r\n"] {
        let head =
            format!("POST / HTTP/1.1\r\nHost: t\r\n{header}Content-Length: {BODY_MAX}\r\n\r\n");
        let text = server.raw(&[&head, &body, next].concat()).await;
        assert!(text.contains(&format!("POST / {body}HTTP/1.1 200 OK")), "{header:?}");
        assert!(text.ends_with("GET /next "), "{header:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_answered_before_it_comes() {
    let server = Server::start();
    let length = BODY_MAX + 1;
    for header in ["", "TE: trailers\r\n"] {
        let mut stream = server.connect().await;
        let head =
            format!("POST / HTTP/1.1\r\nHost: t\r\n{header}Content-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        while !text.ends_with("larger than 1048576 bytes") {
            text.push(stream.read_u8().await.unwrap().into());
        }
        // The body comes nevertheless, and a request after it.
        let rest = ["a".repeat(length as usize), "GET /last HTTP/1.1\r\nHost: t\r\n\r\n".into()];
        stream.write_all(rest.concat().as_bytes()).await.unwrap();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("GET /last "), "{header:?} {text}");
    }
    server.end().await;
}

#[tokio::test]
async fn what_comes_of_a_body_while_its_answer_is_written_is_no_request() {
    let server = Server::start();
    for header in ["", "TE: trailers\r\n"] {
        let asked = server.late.asked.load(Ordering::Relaxed);
        let mut stream = server.connect().await;
        let body = "GET /hidden HTTP/1.1\r\nHost: t\r\n\r\n".repeat(1000);
        let head = format!(
            "GET /late HTTP/1.1\r\nHost: t\r\n{header}Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        while !text.ends_with("early \r\n") && !text.ends_with("early ") {
            text.push(stream.read_u8().await.unwrap().into());
        }
        // A part of the body comes while the answer waits, and the rest with the next request after it.
        let (first, rest) = body.split_at(100);
        stream.write_all(first.as_bytes()).await.unwrap();
        while server.late.asked.load(Ordering::Relaxed) < asked + 2 {
            tokio::task::yield_now().await;
        }
        server.late.go_on.notify_one();
        let rest = format!("{rest}GET /last HTTP/1.1\r\nHost: t\r\n\r\n");
        stream.write_all(rest.as_bytes()).await.unwrap();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("late ") && !text.contains("/hidden"), "{header:?} {text}");
        assert!(text.ends_with("GET /last "), "{header:?} {text}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_body_that_breaks_off_ends_the_connection() {
    let server = Server::start();
    let mut stream = server.connect().await;
    let head = "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\nbegun";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(!text.contains("POST"), "{text}");
    server.end().await;
}

#[tokio::test]
async fn a_body_that_stands_still_ends_the_connection() {
    let server = Server::with_patience(Duration::from_millis(50));
    for header in ["", "TE: trailers\r\n"] {
        let head = format!("POST / HTTP/1.1\r\nHost: t\r\n{header}Content-Length: 100000\r\n\r\n");
        assert_eq!(server.raw(&(head + "begun")).await, "", "{header:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn the_last_answer_ends_the_connection() {
    let server = Server::start();
    for header in ["", "TE: trailers\r\n"] {
        let next = format!("GET / HTTP/1.1\r\nHost: t\r\n{header}\r\n");
        let last = next.replace("GET /", "GET /last");
        let text = server.raw(&[next.clone(), next.clone(), last, next].concat()).await;
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3, "{text}");
        assert_eq!(text.matches("Connection: close").count(), 1, "{text}");
    }
    server.end().await;
}

#[tokio::test]
async fn a_request_that_came_before_the_end_is_answered() {
    for header in ["", "TE: trailers\r\n"] {
        let mut server = Server::start();
        let mut stream = server.connect().await;
        let request = format!("GET / HTTP/1.1\r\nHost: t\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        // All in one turn of the runtime's only thread: the server is told to end before it could read this.
        stream.try_write(request.as_bytes()).unwrap();
        drop(server.end.take());
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 1, "{text}");
        server.served.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn bytes_that_are_no_http_are_explained_by_who_answers() {
    let server = Server::start();
    let text = server.raw("NONSENSE\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
    assert!(text.ends_with("Content-Length: 12\r\n\r\nno HTTP: 400"), "{text}");
    server.end().await;
}

#[tokio::test]
async fn a_connection_may_stop_to_speak_http() {
    let server = Server::start();
    let mut stream = server.connect().await;
    let asked = "GET / HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    stream.write_all(b"what").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "what");
    server.end().await;
}

#[tokio::test]
async fn streams_of_http_2_get_the_same_answers() {
    let server = Server::start();
    let stream = TokioIo::new(server.connect().await);
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream);
    let (mut sender, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let admission = Admission::new(Default::default());
    let mut ask = async |path: &str, headers: usize| {
        let mut request = Request::post(format!("http://t{path}"));
        for number in 0..headers {
            request = request.header(format!("x-{number}"), "1");
        }
        let body = ResponseBody::whole(Bytes::from_static(b"abc"));
        let (head, body) =
            sender.send_request(request.body(body).unwrap()).await.unwrap().into_parts();
        assert_eq!(head.headers[PRAGMA], "no-cache");
        assert!(!head.headers.contains_key(CONNECTION));
        let body = RequestBody::new(body, false).read(BODY_MAX, &admission, None).await.unwrap();
        String::from_utf8(body.into_whole().to_vec()).unwrap()
    };
    assert_eq!(ask("/a%20b?c=d", 0).await, "POST /a%20b?c=d abc");
    assert_eq!(ask("/?pieces", 0).await, "POST /?pieces abc");
    assert_eq!(ask("/", 100).await, "The request has more than 100 headers.");
    // The connection ends with it, since nothing else is under way.
    assert_eq!(ask("/last", 0).await, "POST /last abc");
    connection.await.unwrap().unwrap();
    server.end().await;
}
