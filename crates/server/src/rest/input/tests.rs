//! Every shape of request and the parameters it becomes.

use http::Request;

use super::*;
use crate::route::ModelRef;

const ROUTE: PredictRoute<'_> = PredictRoute {
    target: ModelRef { model: "m", version: None },
    explain: Some(true),
    url_path: Some("a/b"),
    query_counts: false,
    open_inference: false,
};

/// Parameters as `name|content type|value`, and the headers as `name=value`.
fn shape(
    dialect: Dialect,
    uri: &str,
    route: PredictRoute<'_>,
    content_type: Option<&str>,
    body: &str,
) -> Result<(Vec<String>, Vec<String>), Problem> {
    let mut request = Request::builder().uri(uri);
    if let Some(value) = content_type {
        request = request.header(CONTENT_TYPE, value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let id = jitney_net::request_id::XRequestId::fresh();
    let body = body.as_bytes().to_vec().into();
    let parameters = runtime.block_on(parameters(dialect, &parts, &route, body))?;
    let input = input(
        &id,
        headers(&parts.headers, &Caller::ANYBODY, &Claim::default()),
        &route,
        parameters,
    );
    assert_eq!(input.id, id.text());
    let text = String::from_utf8_lossy;
    let parameters = input.parameters.iter();
    let headers = input.headers.iter();
    Ok((
        parameters.map(|p| format!("{}|{}|{}", p.name, p.content_type, text(&p.value))).collect(),
        headers.map(|(name, value)| format!("{}={}", text(name), text(value))).collect(),
    ))
}

fn check(content_type: Option<&str>, body: &str, expected: &[&str]) {
    check_in(Dialect::TorchServe, content_type, body, expected);
}

fn check_in(dialect: Dialect, content_type: Option<&str>, body: &str, expected: &[&str]) {
    let (parameters, _) =
        shape(dialect, "/predictions/m?color=red", ROUTE, content_type, body).unwrap();
    assert_eq!(parameters, expected, "{content_type:?} {body:?}");
}

#[test]
fn a_plain_body_is_one_parameter_with_its_type() {
    check(None, "x", &["body||x"]);
    check(None, "", &["body||"]);
    check(Some("text/plain; charset=utf-8"), "x", &["body|text/plain|x"]);
    check(Some("application/json;"), "{}", &["body|application/json|{}"]);
    check(Some("application/vnd.api+json"), "{}", &["body|application/vnd.api+json|{}"]);
}

#[test]
fn a_form_is_one_parameter_per_field() {
    let form = Some("application/x-www-form-urlencoded");
    check(form, "a=1&b=two+words&c=%C3%BC", &["a||1", "b||two words", "c||\u{fc}"]);
    check(form, "flag&a=1&b=", &["flag||", "a||1", "b||"]);
    check(form, "a=1\r\n", &["a||1"]);
    check(form, "", &[]);
}

#[test]
fn text_that_is_no_form_gives_no_fields() {
    let form = Some("application/x-www-form-urlencoded");
    check(form, "1", &[]);
    check(form, "{\"instances\": [1]}", &[]);
    check(form, "a=1&rest", &["a||1"]);
}

#[test]
fn text_that_is_no_form_is_a_body_of_ours() {
    let form = Some("application/x-www-form-urlencoded");
    let body = |text: &str| check_in(Dialect::Jitney, form, text, &[&format!("body||{text}")]);
    body("def f(): pass");
    body("{\"text\": \"a=b\"}");
    body("x = 1");
    body("fish & chips = good");
    body("x=1\ny=2\n");
    let fields = |text: &str, expected: &[&str]| check_in(Dialect::Jitney, form, text, expected);
    fields("text=hello world", &["text||hello world"]);
    fields("a=1&b%5B%5D=two+words&a.b-c=\r\n", &["a||1", "b[]||two words", "a.b-c||"]);
    fields("flag&a=1&rest", &["flag||", "a||1"]);
    fields("", &[]);
}

#[test]
fn a_multipart_body_is_one_parameter_per_part() {
    let body = "--B\r\n\
        Content-Disposition: form-data; name=\"first\"; filename=\"a.txt\"\r\n\
        Content-Type: text/plain; charset=utf-8\r\n\r\nwords\r\n--B\r\n\
        Content-Disposition: form-data; name=\"second\"\r\n\r\nplain\r\n--B\r\n\
        Content-Disposition: form-data; name=\"third\"; filename=\"c.bin\"\r\n\r\n\r\n--B--\r\n";
    check(
        Some("multipart/form-data; boundary=B"),
        body,
        &["first|text/plain|words", "second||plain", "third|application/octet-stream|"],
    );
}

#[test]
fn a_multipart_body_is_the_same_however_it_came() {
    let part = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n";
    let value = "one\r\n--\r\n--C\r\n\r\n\n--B";
    for body in [
        format!("{part}{value}\r\n{part}\r\n--B--\r\nbehind"),
        format!("before{part}\r\n{part}{value}\r\n--B  \t\r\n{value}"),
        format!("{part}{value}\r\n{}{value}\r\n--B--", part.replace("--B", "--B \t")),
        format!("{part}{value}\r\n{}{value}\r\n--B--", part.replace("--B", "--BC")),
        format!("--B\r\n\r\n{value}\r\n\r\n\r\n--B--"),
        format!("{part}{value}\r\n--B"),
        format!("{part}{value}"),
        "--B\r\n\r\n--B\r\n\r\n--B--".to_owned(),
    ] {
        fuzzing::forms(format!("multipart/form-data; boundary=B\n{body}").as_bytes());
    }
}

#[test]
fn the_value_of_a_part_is_not_copied() {
    let body = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nvalue\r\n--B--";
    let pieces: Vec<_> = body.as_bytes().chunks(52).map(Bytes::copy_from_slice).collect();
    let (_, values) = multipart::cut(&ValueBytes::from_pieces(pieces.clone()), "B");
    let [value] = &values[..] else { panic!("{values:?}") };
    assert_eq!(value.pieces(), ["val", "ue"]);
    assert_eq!(value.pieces()[1].as_ptr(), pieces[1].as_ptr());
}

#[test]
fn a_multipart_type_without_a_boundary_is_a_plain_body() {
    check(Some("multipart/form-data"), "--B", &["body|multipart/form-data|--B"]);
    check(Some("multipart/form-data; boundary=B"), "", &[]);
}

#[test]
fn a_broken_multipart_body_is_the_clients_fault() {
    for (content_type, body) in [
        ("multipart/form-data; boundary=B", "nothing of the sort"),
        (
            "multipart/form-data; boundary=B",
            "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ncut",
        ),
    ] {
        let problem = shape(Dialect::TorchServe, "/", ROUTE, Some(content_type), body).unwrap_err();
        assert_eq!(problem.status, 400, "{body:?}");
    }
}

#[test]
fn the_query_counts_only_where_the_route_says_so() {
    let route = PredictRoute { query_counts: true, explain: None, url_path: None, ..ROUTE };
    let (parameters, headers) =
        shape(Dialect::TorchServe, "/m/predict?a=1&a=2", route, Some("x/y"), "b").unwrap();
    assert_eq!(parameters, ["a||1", "a||2", "body|x/y|b"]);
    assert_eq!(headers, ["content-type=x/y"]);
}

#[test]
fn the_route_says_what_is_asked() {
    let explains = call_route(&ROUTE);
    assert_eq!((explains.operation, explains.tells_explain), (Operation::Explain, true));
    assert_eq!((explains.endpoint.as_deref(), explains.open_inference), (Some("a/b"), false));
    let route =
        PredictRoute { url_path: None, explain: Some(false), open_inference: true, ..ROUTE };
    let predicts = call_route(&route);
    assert_eq!((predicts.operation, predicts.tells_explain), (Operation::Predict, true));
    assert_eq!((predicts.endpoint, predicts.open_inference), (None, true));
}

#[test]
fn a_client_cannot_say_what_only_the_route_says() {
    let names = ["explain", "describe", "url_path", "open_inference", "x-mine"];
    let sent = names.map(|name| (http::HeaderName::from_static(name), "True".parse().unwrap()));
    let kept = headers(&HeaderMap::from_iter(sent), &Caller::ANYBODY, &Claim::default());
    let kept: Vec<_> = kept.iter().map(|(name, _)| name.to_vec()).collect();
    assert_eq!(kept, [&b"open_inference"[..], b"x-mine"], "the first is a header like any other");
    let route = PredictRoute { url_path: None, explain: None, ..ROUTE };
    assert_eq!(call_route(&route), CallRoute::default());
}

#[test]
fn a_form_is_read_up_to_its_last_field_that_a_model_could_be_given() {
    let fields = |count: usize| "a=&".repeat(count);
    let parts = |count: usize| {
        let part = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n";
        part.repeat(count) + "--b--\r\n"
    };
    let forms: [(&str, &dyn Fn(usize) -> String); 2] = [
        ("application/x-www-form-urlencoded", &fields),
        ("multipart/form-data; boundary=b", &parts),
    ];
    for (content_type, form) in forms {
        let read = |count| {
            shape(Dialect::TorchServe, "/predictions/m", ROUTE, Some(content_type), &form(count))
        };
        assert_eq!(read(255).unwrap().0.len(), 255, "{content_type}");
        let problem = read(256).unwrap_err();
        assert_eq!(problem.code, ErrorCode::TooLarge, "{content_type}");
        assert_eq!(problem.message, "The form has more than 255 fields.");
    }
}
