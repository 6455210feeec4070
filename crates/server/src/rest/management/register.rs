//! `POST /models`: an archive becomes a model, with workers if they are wanted.

use jitney_engine::settings::Wishes;

use super::models::{need_model_api, notice};
use super::scale;
use crate::body::RequestBody;
use crate::errors::Problem;
use crate::management;
use crate::query::RequestFields;
use crate::respond::HttpResponse;
use crate::rest::context::RequestContext;
use crate::rest::input;

/// Registers a model. `synchronous` (the default) waits until its workers are loaded.
pub(crate) async fn register(
    context: &RequestContext<'_>,
    body: RequestBody,
) -> Result<HttpResponse, Problem> {
    need_model_api(context)?;
    let fields = fields(context, body).await?;
    let wishes = wishes(&fields)?;
    let synchronous = fields.boolean("synchronous", true);
    management::register(&context.state.engine, wishes, synchronous).await.map(notice)
}

/// A JSON body replaces the query; any other body is ignored.
pub(super) async fn fields(
    context: &RequestContext<'_>,
    body: RequestBody,
) -> Result<RequestFields, Problem> {
    if input::mime(&context.parts.headers) != "application/json" {
        return Ok(context.query());
    }
    RequestFields::from_json(&context.read(body).await?).map_err(Problem::bad_request)
}

/// What the caller asks for; negative numbers are TorchServe's mark for "not set", and fewer workers
/// than none are none.
fn wishes(fields: &RequestFields) -> Result<Wishes, Problem> {
    let text = |name| fields.text(name).map(str::to_owned);
    let url = text("url").ok_or_else(|| Problem::bad_request("Parameter url is required."))?;
    Ok(Wishes {
        url,
        model_name: text("model_name"),
        handler: text("handler"),
        runtime: text("runtime"),
        batch_size: scale::batch_size(fields),
        max_batch_delay_ms: scale::not_negative(fields, "max_batch_delay"),
        max_latency_ms: scale::positive(fields, "max_latency_ms").map(u64::from),
        policy: scale::policy(fields)?,
        initial_workers: fields.integer("initial_workers").map(|count| count.max(0).unsigned_abs()),
        response_timeout_s: scale::not_negative(fields, "response_timeout"),
        startup_timeout_s: scale::not_negative(fields, "startup_timeout"),
        sha256: fields.text("sha256").map(str::parse).transpose().map_err(Problem::bad_request)?,
        queue_max: scale::positive(fields, "job_queue_size"),
        tenants: scale::tenants(fields)?,
        s3_sse_kms: fields.boolean("s3_sse_kms", false),
        ..Wishes::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jitney_engine::settings::PolicyName;

    fn read(query: &str) -> Result<Wishes, Problem> {
        wishes(&RequestFields::from_query(Some(query)))
    }

    #[test]
    fn every_parameter_reaches_the_engine() {
        let wishes = read(
            "url=a.mar&model_name=m&handler=h:f&runtime=python3&batch_size=8&max_batch_delay=0\
             &max_latency_ms=50&policy=adaptive&initial_workers=2&response_timeout=33&startup_timeout=0",
        )
        .unwrap();
        assert_eq!((wishes.url.as_str(), wishes.model_name.as_deref()), ("a.mar", Some("m")));
        assert_eq!(
            (wishes.handler.as_deref(), wishes.runtime.as_deref()),
            (Some("h:f"), Some("python3"))
        );
        assert_eq!((wishes.batch_size, wishes.max_batch_delay_ms), (Some(8), Some(0)));
        assert_eq!((wishes.max_latency_ms, wishes.policy), (Some(50), Some(PolicyName::Adaptive)));
        assert_eq!(wishes.initial_workers, Some(2));
        assert_eq!((wishes.response_timeout_s, wishes.startup_timeout_s), (Some(33), Some(0)));
        assert!(!wishes.at_startup);
    }

    #[test]
    fn what_cannot_be_read_counts_as_not_set() {
        let wishes = read(
            "url=&batch_size=many&max_batch_delay=-100&response_timeout=1.5&initial_workers=two",
        )
        .unwrap();
        assert_eq!(wishes.url, "", "an empty url is the store's to refuse");
        assert_eq!((wishes.batch_size, wishes.max_batch_delay_ms), (None, None));
        assert_eq!((wishes.response_timeout_s, wishes.initial_workers), (None, None));
        assert_eq!(read("url=a&batch_size=-1").unwrap().batch_size, None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (query, message) in [
            ("", "Parameter url is required."),
            (
                "url=a&policy=magic",
                "unknown batching policy \"magic\"; known: adaptive, window, opportunistic",
            ),
        ] {
            let problem = read(query).unwrap_err();
            assert_eq!((problem.status, problem.message.as_str()), (400, message));
        }
    }
}
