//! `/v2/systemsharedmemory` and `/v2/cudasharedmemory`: the memory that clients share.

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::context::RequestContext;
use crate::body::RequestBody;
use crate::errors::Problem;
use crate::respond::{self, HttpResult};
use crate::route::{SharedMemoryAction, SharedMemoryRoute};
use crate::shared_memory::{allowed, no_cuda_region, no_cuda_sharing};

/// The body of a registration.
#[derive(Deserialize)]
struct RegionBody {
    key: String,
    #[serde(default)]
    offset: u64,
    byte_size: u64,
}

/// Answers what is asked about a region, or about all.
pub(super) async fn answer(
    context: &RequestContext<'_>,
    route: SharedMemoryRoute<'_>,
    body: RequestBody,
) -> HttpResult {
    let SharedMemoryRoute { cuda, region, action } = route;
    let (memory, name) = (context.state.shared_memory.as_ref(), region.unwrap_or_default());
    match (action, cuda) {
        (SharedMemoryAction::Status, true) => {
            no_cuda_region(name)?;
            Ok(respond::json(StatusCode::OK, &json!([])))
        }
        (SharedMemoryAction::Status, false) => {
            let regions = match memory {
                None if name.is_empty() => Vec::new(),
                _ => allowed(memory)?.status(name)?,
            };
            let all = regions.iter().map(|it| {
                json!({"name": it.name, "key": it.key, "offset": it.offset, "byte_size": it.size})
            });
            Ok(respond::json(StatusCode::OK, &all.collect::<Vec<Value>>()))
        }
        (SharedMemoryAction::Register, true) => Err(no_cuda_sharing()),
        (SharedMemoryAction::Register, false) => {
            let memory = allowed(memory)?;
            let body = context.read(body).await?;
            let region: RegionBody = serde_json::from_slice(&body).map_err(|error| {
                Problem::bad_request(format!(
                    "A region is registered with JSON of key, offset and byte_size: {error}."
                ))
            })?;
            memory.register(name, &region.key, region.offset, region.byte_size)?;
            Ok(respond::plain(StatusCode::OK, Bytes::new()))
        }
        (SharedMemoryAction::Unregister, _) => {
            if let Some(memory) = memory.filter(|_| !cuda) {
                memory.unregister(name);
            }
            Ok(respond::plain(StatusCode::OK, Bytes::new()))
        }
    }
}
