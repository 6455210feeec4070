//! How a request becomes a model's input: every form of body that TorchServe takes.
//!
//! Values are not decoded here; the worker does that, by the content type of each parameter.

mod multipart;

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http_body_util::{BodyDataStream, Full};
use jitney_engine::call::{
    CallRoute, Claim, HeaderBlock, Input, Operation, PARAMETERS_MAX, Parameter, ValueBytes,
};
use jitney_net::request_id::XRequestId;
use jitney_settings::Dialect;

use crate::errors::{ErrorCode, Problem};
use crate::keys::Caller;
use crate::query::{RequestFields, pairs};
use crate::request_options::push_tenant;
use crate::route::PredictRoute;

/// What a request gives the model beside its head.
pub(super) async fn parameters(
    dialect: Dialect,
    parts: &Parts,
    route: &PredictRoute<'_>,
    body: ValueBytes,
) -> Result<Vec<Parameter>, Problem> {
    let mut parameters = Vec::new();
    if route.query_counts {
        parameters.extend(query_parameters(&RequestFields::from_query(parts.uri.query())));
    }
    body_parameters(dialect, &parts.headers, body, &mut parameters).await?;
    Ok(parameters)
}

/// The model's input from a request.
#[inline]
pub(super) fn input(
    id: &XRequestId,
    headers: HeaderBlock,
    route: &PredictRoute<'_>,
    parameters: Vec<Parameter>,
) -> Box<Input> {
    let (id, route) = (id.text().to_owned(), call_route(route));
    Box::new(Input { id, headers, route, parameters, tensors: None })
}

/// The field `model_name` of the body, for `/invocations`.
pub(super) async fn named_model(
    dialect: Dialect,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Option<String>, Problem> {
    let mut parameters = Vec::new();
    body_parameters(dialect, headers, body.clone().into(), &mut parameters).await?;
    let found = parameters.iter().find(|parameter| parameter.name == "model_name");
    Ok(found.map(|parameter| String::from_utf8_lossy(&parameter.value).into_owned()))
}

/// The client's headers, without those that are no affair of the model. Names are in lower case, as hyper gives them; the worker ignores case.
pub(super) fn headers(sent: &HeaderMap, caller: &Caller, claim: &Claim) -> HeaderBlock {
    let mut headers = HeaderBlock::new();
    let shows_all = caller.shows_all();
    for (name, value) in sent {
        if shows_all || !caller.hides(name) {
            headers.push(name.as_str(), value.as_bytes());
        }
    }
    if !shows_all {
        push_tenant(claim, &mut headers);
    }
    headers
}

/// The facts of the path.
fn call_route(route: &PredictRoute<'_>) -> CallRoute {
    CallRoute {
        operation: if route.explain == Some(true) {
            Operation::Explain
        } else {
            Operation::Predict
        },
        tells_explain: route.explain.is_some(),
        open_inference: route.open_inference,
        endpoint: route.url_path.map(Into::into),
        ..CallRoute::default()
    }
}

/// The body's MIME type: the text before the first semicolon, empty when there is none.
pub(super) fn mime(headers: &HeaderMap) -> &str {
    let text = content_type(headers);
    text.split_once(';').map_or(text, |(mime, _)| mime)
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("")
}

fn query_parameters(query: &RequestFields) -> impl Iterator<Item = Parameter> {
    query
        .iter()
        .map(|(name, value)| field(name.to_owned(), Bytes::copy_from_slice(value.as_bytes())))
}

async fn body_parameters(
    dialect: Dialect,
    headers: &HeaderMap,
    body: ValueBytes,
    parameters: &mut Vec<Parameter>,
) -> Result<(), Problem> {
    let mime = mime(headers);
    if mime.eq_ignore_ascii_case("multipart/form-data")
        && let Some(boundary) = boundary(headers)?
    {
        return Box::pin(multipart(boundary, body, parameters)).await;
    }
    let mut content_type = known(mime);
    if mime.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        if dialect == Dialect::TorchServe || is_form(&body) {
            return form(&body).try_for_each(|parameter| add(parameters, parameter));
        }
        content_type = known("");
    }
    parameters.push(Parameter { name: "body".into(), content_type, value: body });
    Ok(())
}

/// Whether what came with a form's type is a form: one line of fields, the names of which have no
/// characters that forms encode. curl gives this type to any text (`curl -d TEXT`). Nothing at all is an
/// empty form.
fn is_form(body: &[u8]) -> bool {
    let line = body.trim_ascii_end();
    let name = |field: &[u8]| field.split(|byte| *byte == b'=').next().is_none_or(is_field_name);
    let mut fields = line.split(|byte| *byte == b'&');
    line.is_empty() || line.contains(&b'=') && fields.all(name) && !line.contains(&b'\n')
}

fn is_field_name(name: &[u8]) -> bool {
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-.[]%+*~:$@".contains(byte))
}

/// The usual types cost no allocation.
fn known(mime: &str) -> Cow<'static, str> {
    const USUAL: [&str; 6] = [
        "",
        "application/octet-stream",
        "application/json",
        "text/plain",
        "image/jpeg",
        "image/png",
    ];
    let usual = USUAL.into_iter().find(|usual| *usual == mime);
    usual.map_or_else(|| Cow::Owned(mime.to_owned()), Cow::Borrowed)
}

/// The fields of a form, which is one line. Ignores a trailing name without a value, so that text which
/// is no form, sent with curl's default type, does not become a name.
fn form(body: &[u8]) -> impl Iterator<Item = Parameter> {
    let line = body.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let last = line.rsplit(|byte| *byte == b'&').next().unwrap_or_default();
    let cut = if last.contains(&b'=') { 0 } else { last.len() };
    pairs(&line[..line.len() - cut]).map(|(name, value)| {
        let value = Bytes::from(value.into_owned());
        field(String::from_utf8_lossy(&name).into_owned(), value)
    })
}

/// Adds a field of a form, as long as the model could be given it: the rest of the form is not even read.
fn add(parameters: &mut Vec<Parameter>, parameter: Parameter) -> Result<(), Problem> {
    if parameters.len() >= PARAMETERS_MAX {
        let message = format!("The form has more than {PARAMETERS_MAX} fields.");
        return Err(Problem::new(ErrorCode::TooLarge, message));
    }
    parameters.push(parameter);
    Ok(())
}

fn field(name: String, value: Bytes) -> Parameter {
    Parameter { name: name.into(), content_type: "".into(), value: value.into() }
}

/// The boundary between the parts. A content type without one was typed by hand, and the body is no
/// multipart body.
fn boundary(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    match multer::parse_boundary(content_type(headers)) {
        Ok(boundary) => Ok(Some(boundary)),
        Err(multer::Error::NoBoundary) => Ok(None),
        Err(error) => Err(broken(&error)),
    }
}

fn broken(error: &multer::Error) -> Problem {
    Problem::bad_request(format!("The multipart body cannot be read: {error}"))
}

/// One parameter per part. Only a file has a content type; one that names none is plain bytes.
async fn multipart(
    boundary: String,
    body: ValueBytes,
    parameters: &mut Vec<Parameter>,
) -> Result<(), Problem> {
    if body.is_empty() {
        return Ok(());
    }
    let bad = |error: multer::Error| broken(&error);
    let (heads, values) = multipart::cut(&body, &boundary);
    let mut values = values.into_iter();
    let stream = BodyDataStream::new(Full::new(heads));
    let mut parts = multer::Multipart::new(stream, boundary);
    while let Some(part) = parts.next_field().await.map_err(bad)? {
        let name = part.name().unwrap_or("").to_owned();
        let mime = match (part.file_name(), part.content_type()) {
            (Some(_), Some(mime)) => known(mime.essence_str()),
            (Some(_), None) => known("application/octet-stream"),
            (None, _) => known(""),
        };
        let left = part.bytes().await.map_err(bad)?;
        let value = values.next().unwrap_or_else(|| left.into());
        add(parameters, Parameter { name: name.into(), content_type: mime, value })?;
    }
    Ok(())
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
