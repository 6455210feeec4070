//! `/v2/systemsharedmemory` and `/v2/cudasharedmemory`: the memory that clients share.

use bytes::Bytes;
use http::StatusCode;
use jitney_net::RequestBody;
use serde::Deserialize;
use serde_json::{Value, json};

use super::context::RequestContext;
use crate::errors::Problem;
use crate::respond::{self, HttpResponse, HttpResult};
use crate::shared_memory::{allowed, no_cuda_region};

/// The body of a registration.
#[derive(Deserialize)]
struct RegionBody {
    key: String,
    #[serde(default)]
    offset: u64,
    byte_size: u64,
}

/// A region, or all if none is named.
pub(super) fn status(context: &RequestContext<'_>, name: &str) -> HttpResult {
    let regions = match context.state.shared_memory.as_ref() {
        None if name.is_empty() => Vec::new(),
        memory => allowed(memory)?.status(name)?,
    };
    let all = regions.iter().map(
        |it| json!({"name": it.name, "key": it.key, "offset": it.offset, "byte_size": it.size}),
    );
    Ok(respond::json(StatusCode::OK, &all.collect::<Vec<Value>>()))
}

/// A new region.
pub(super) async fn register(
    context: &RequestContext<'_>,
    name: &str,
    body: RequestBody,
) -> HttpResult {
    let memory = allowed(context.state.shared_memory.as_ref())?;
    let body = context.read(body).await?;
    let region: RegionBody = serde_json::from_slice(&body).map_err(|error| {
        Problem::bad_request(format!(
            "A region is registered with JSON of key, offset and byte_size: {error}."
        ))
    })?;
    memory.register(name, &region.key, region.offset, region.byte_size)?;
    Ok(nothing())
}

/// The end of a region, or of all if none is named.
pub(super) fn unregister(context: &RequestContext<'_>, name: &str) -> HttpResult {
    if let Some(memory) = &context.state.shared_memory {
        memory.unregister(name);
    }
    Ok(nothing())
}

/// The regions of GPUs, of which there are none.
pub(super) fn cuda_status(name: &str) -> HttpResult {
    no_cuda_region(name)?;
    Ok(respond::json(StatusCode::OK, &json!([])))
}

/// An answer without a body.
pub(super) fn nothing() -> HttpResponse {
    respond::plain(StatusCode::OK, Bytes::new())
}
