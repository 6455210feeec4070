//! OpenAI's `/v1/embeddings`, for definitions that say that they give embeddings. Every text of the
//! input is an item. Answers and errors have the form that OpenAI's clients read.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jitney_engine::Model;
use jitney_engine::call::{Answer, Parameter};
use jitney_net::RequestBody;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::context::RequestContext;
use super::{fan_out, inference, v1};
use crate::auth::{Gate, GuardedOperation};
use crate::errors::{ErrorCode, Problem};
use crate::inference::body_parameter;
use crate::plugins::Plugins;
use crate::respond::{self, HttpResponse, HttpResult};
use crate::route::{ModelRef, PredictRoute};

/// What a definition calls itself that answers here.
const EMBEDDINGS: &str = "embeddings";

#[derive(Deserialize)]
struct EmbeddingRequest<'a> {
    model: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    encoding_format: Option<String>,
    dimensions: Option<u64>,
}

/// A vector with the number of tokens that it was made of; definitions may also give it bare.
#[derive(Deserialize)]
struct CountedVector<'a> {
    #[serde(borrow)]
    embedding: &'a RawValue,
    #[serde(default)]
    tokens: u64,
}

/// The vector of an answer, and its tokens.
fn vector_of(body: &[u8]) -> Option<(&RawValue, u64)> {
    if !body.trim_ascii_start().starts_with(b"{") {
        return serde_json::from_slice(body).ok().map(|vector| (vector, 0));
    }
    let counted: CountedVector<'_> = serde_json::from_slice(body).ok()?;
    Some((counted.embedding, counted.tokens))
}

#[derive(Serialize)]
struct EmbeddingData<'a> {
    object: &'static str,
    index: usize,
    embedding: WrittenVector<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WrittenVector<'a> {
    List(&'a RawValue),
    /// Single precision, little-endian, in base64.
    Base64(String),
}

/// `POST /v1/embeddings`. A plugin that authorizes requests is asked as soon as the model is known.
pub(super) async fn create(
    context: &RequestContext<'_>,
    plugins: Option<&Plugins>,
    body: RequestBody,
) -> HttpResult {
    let answered = answer(context, plugins, body).await;
    answered.or_else(|problem| Ok(failed(&problem)))
}

async fn answer(
    context: &RequestContext<'_>,
    plugins: Option<&Plugins>,
    body: RequestBody,
) -> HttpResult {
    let body = context.read(body).await?;
    let request: EmbeddingRequest<'_> = serde_json::from_slice(&body).map_err(|error| {
        Problem::bad_request(format!("The request body is not what embeddings take: {error}."))
    })?;
    let name = request.model.as_deref().ok_or_else(|| Problem::bad_request(MODEL_MISSING))?;
    context.caller.check(Gate::Inference, GuardedOperation::Predict, Some(name))?;
    let mut authorized = None;
    if let Some(plugins) = plugins {
        let _held = context.state.inference.hold(name, body.len() as u64)?;
        authorized = Some(inference::authorize_model(context, plugins, name).await?);
    }
    let context = authorized.as_ref().map_or(*context, |authorized| authorized.context(context));
    let target = ModelRef { model: name, version: None };
    let model = context.model_for(target)?;
    let endpoint = model.api().and_then(|api| api.openai.get(EMBEDDINGS));
    let endpoint = endpoint.ok_or_else(|| {
        Problem::bad_request(format!(
            "The model {name:?} gives no embeddings: its definition does not say \
             openai=\"{EMBEDDINGS}\"."
        ))
    })?;
    let base64 = match request.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let message = format!("encoding_format must be float or base64, not {other:?}.");
            return Err(Problem::bad_request(message));
        }
    };
    if request.dimensions.is_some() {
        let message =
            format!("The model {name:?} gives vectors of its own size: leave dimensions out.");
        return Err(Problem::bad_request(message));
    }
    let texts = texts(&body, request.input).map_err(|reason| {
        Problem::bad_request(format!("The input for the model {name:?}: {reason}."))
    })?;
    let route = PredictRoute { url_path: Some(endpoint), ..PredictRoute::new(target) };
    let answers = fan_out::call_each(&context, &model, &route, texts).await?;
    let body = written(&model, &answers, base64)?;
    Ok(v1::reply(body, &answers))
}

const MODEL_MISSING: &str = "The request names no model.";

/// Each text as the body of a request of its own.
fn texts(body: &Bytes, input: Option<&RawValue>) -> Result<Vec<Parameter>, String> {
    let expected = "expected a text or a list of texts";
    let input = input.ok_or_else(|| format!("{expected}, got nothing"))?;
    let all: Vec<&RawValue> = match input.get().as_bytes().first() {
        Some(b'"') => vec![input],
        Some(b'[') => serde_json::from_str(input.get()).map_err(|error| error.to_string())?,
        Some(_) | None => return Err(format!("{expected}, got {}", input.get())),
    };
    let is_text = |text: &&RawValue| text.get().starts_with('"');
    if all.is_empty() {
        return Err(format!("{expected}, got an empty list"));
    }
    if let Some(other) = all.iter().find(|text| !is_text(text)) {
        let tokens = other.get().starts_with(|first: char| first == '[' || first.is_ascii_digit());
        let given = if tokens { "tokens, which the model does not take" } else { other.get() };
        return Err(format!("{expected}, got {given}"));
    }
    let parameter =
        |text: &RawValue| body_parameter("application/json", body.slice_ref(text.get().as_bytes()));
    Ok(all.into_iter().map(parameter).collect())
}

/// OpenAI's answer.
fn written(model: &Arc<Model>, answers: &[Answer], base64: bool) -> Result<Vec<u8>, Problem> {
    let (mut data, mut tokens) = (Vec::with_capacity(answers.len()), 0u64);
    for (index, answer) in answers.iter().enumerate() {
        let wrong = |reason: &str| {
            let message =
                format!("The model {:?} gave no vector for text {index}: {reason}.", model.name());
            Problem::new(ErrorCode::Internal, message)
        };
        let (vector, counted) = vector_of(&answer.output.body).ok_or_else(|| {
            wrong("expected a list, or an object with \"embedding\" and \"tokens\"")
        })?;
        let numbers: Vec<f32> =
            serde_json::from_str(vector.get()).map_err(|_| wrong("no list of numbers"))?;
        tokens = tokens.saturating_add(counted);
        let embedding = match base64 {
            false => WrittenVector::List(vector),
            true => {
                let bytes: Vec<u8> = numbers.iter().flat_map(|one| one.to_le_bytes()).collect();
                WrittenVector::Base64(STANDARD.encode(bytes))
            }
        };
        data.push(EmbeddingData { object: "embedding", index, embedding });
    }
    let body = EmbeddingList {
        object: "list",
        data,
        model: model.name(),
        usage: Usage { prompt_tokens: tokens, total_tokens: tokens },
    };
    serde_json::to_vec(&body).map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))
}

#[derive(Serialize)]
struct EmbeddingList<'a> {
    object: &'static str,
    data: Vec<EmbeddingData<'a>>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: u64,
    total_tokens: u64,
}

/// A failure in OpenAI's form.
pub(super) fn failed(problem: &Problem) -> HttpResponse {
    let kind = match problem.status {
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    let code = (problem.code == ErrorCode::ModelNotFound).then_some("model_not_found");
    let message = &problem.message;
    let error = json!({ "message": message, "type": kind, "param": null, "code": code });
    respond::problem_as(problem, &json!({ "error": error }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_may_come_with_its_tokens() {
        let read = |body: &'static str| {
            vector_of(body.as_bytes()).map(|(vector, tokens)| (vector.get(), tokens))
        };
        assert_eq!(read("[1, 2.5]"), Some(("[1, 2.5]", 0)));
        assert_eq!(read(r#"{"embedding": [1], "tokens": 7}"#), Some(("[1]", 7)));
        assert_eq!(read(r#"{"embedding": [1]}"#), Some(("[1]", 0)));
        assert_eq!(read(r#"{"vector": [1]}"#), None);
    }

    #[test]
    fn the_input_is_a_text_or_a_list_of_texts() {
        let read = |input: &str| {
            let body = Bytes::from(format!("{{\"input\": {input}}}"));
            let request: EmbeddingRequest<'_> = serde_json::from_slice(&body).unwrap();
            let shown = |one: &Parameter| String::from_utf8_lossy(&one.value).into_owned();
            texts(&body, request.input).map(|all| all.iter().map(shown).collect::<Vec<_>>())
        };
        assert_eq!(read("\"a \\u00fc\"").unwrap(), ["\"a \\u00fc\""]);
        assert_eq!(read("[\"a\", \"\"]").unwrap(), ["\"a\"", "\"\""]);
        let wrong = [
            ("[1, 2]", "got tokens, which the model does not take"),
            ("[[1, 2]]", "got tokens, which the model does not take"),
            ("[\"a\", null]", "got null"),
            ("[]", "got an empty list"),
            ("{}", "got {}"),
            ("null", "got nothing"),
        ];
        for (input, expected) in wrong {
            let error = read(input).unwrap_err();
            assert!(error.ends_with(expected), "{input}: {error}");
        }
    }
}
