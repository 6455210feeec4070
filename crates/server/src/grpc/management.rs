//! TorchServe's management service: what `crate::management` does. gRPC has no absent values, so zero and
//! the empty text stand for them.

use std::sync::Arc;

use jitney_engine::settings::Wishes;
use jitney_proto::management::management_ap_is_service_server::ManagementApIsService;
use jitney_proto::management::{
    DescribeModelRequest, ListModelsRequest, ManagementResponse, RegisterModelRequest,
    ScaleWorkerRequest, SetDefaultRequest, UnregisterModelRequest,
};
use tonic::{Request, Response, Status};

use super::request::{GrpcRequest, target};
use super::status::model_api_disabled;
use crate::errors::Problem;
use crate::management::{self, Notice, Scaling};
use crate::respond;
use crate::state::ServerState;

type ManagementResult = Result<Response<ManagementResponse>, Status>;

/// The service.
pub(super) struct TorchServeManagement {
    state: Arc<ServerState>,
}

impl TorchServeManagement {
    pub(super) fn new(state: Arc<ServerState>) -> Self {
        Self { state }
    }

    fn need_model_api(&self) -> Result<(), Problem> {
        if self.state.config.model_api { Ok(()) } else { Err(model_api_disabled()) }
    }
}

#[tonic::async_trait]
impl ManagementApIsService for TorchServeManagement {
    async fn describe_model(&self, request: Request<DescribeModelRequest>) -> ManagementResult {
        let (request, message) = GrpcRequest::open(request)?;
        let target = target(named(&message.model_name)?, &message.model_version);
        let caller = (request.caller.id, request.caller.origin());
        let caller = message.customized.then_some(caller);
        let described = management::describe(&self.state, target, caller).await?;
        text_message(respond::pretty(&described))
    }

    async fn list_models(&self, request: Request<ListModelsRequest>) -> ManagementResult {
        let ListModelsRequest { limit, next_page_token } = request.into_inner();
        let limit = Some(limit).filter(|limit| *limit > 0);
        let page = management::list(&self.state.engine, limit, Some(next_page_token));
        text_message(respond::pretty(&page))
    }

    async fn register_model(&self, request: Request<RegisterModelRequest>) -> ManagementResult {
        self.need_model_api()?;
        let message = request.into_inner();
        let synchronous = message.synchronous;
        let wishes = wishes(message)?;
        notice(management::register(&self.state.engine, wishes, synchronous).await)
    }

    async fn scale_worker(&self, request: Request<ScaleWorkerRequest>) -> ManagementResult {
        let message = request.into_inner();
        let range = management::range(given(message.min_worker), given(message.max_worker))?;
        let scaling = Scaling {
            target: target(named(&message.model_name)?, &message.model_version),
            change: None,
            workers: Some(range),
            synchronous: message.synchronous,
        };
        notice(management::scale(&self.state.engine, scaling).await)
    }

    async fn set_default(&self, request: Request<SetDefaultRequest>) -> ManagementResult {
        let SetDefaultRequest { model_name, model_version } = request.into_inner();
        let named = named(&model_name)?;
        notice(management::set_default(&self.state.engine, named, &model_version))
    }

    async fn unregister_model(&self, request: Request<UnregisterModelRequest>) -> ManagementResult {
        self.need_model_api()?;
        let message = request.into_inner();
        let target = target(named(&message.model_name)?, &message.model_version);
        notice(management::unregister(&self.state.engine, target).await)
    }
}

fn wishes(message: RegisterModelRequest) -> Result<Wishes, Problem> {
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let url =
        text(message.url).ok_or_else(|| Problem::bad_request("Parameter url is required."))?;
    Ok(Wishes {
        url,
        model_name: text(message.model_name),
        handler: text(message.handler),
        runtime: text(message.runtime),
        batch_size: given(message.batch_size),
        max_batch_delay_ms: given(message.max_batch_delay).map(u64::from),
        initial_workers: given(message.initial_workers),
        response_timeout_s: given(message.response_timeout).map(u64::from),
        startup_timeout_s: given(message.startup_timeout).map(u64::from),
        s3_sse_kms: message.s3_sse_kms,
        ..Wishes::default()
    })
}

fn given(number: i32) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| *number > 0)
}

fn named(model: &str) -> Result<&str, Problem> {
    let missing = || Problem::bad_request("Parameter model_name is required.");
    if model.is_empty() { Err(missing()) } else { Ok(model) }
}

fn notice(notice: Result<Notice, Problem>) -> ManagementResult {
    text_message(notice?.text)
}

fn text_message(msg: String) -> ManagementResult {
    Ok(Response::new(ManagementResponse { msg }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_the_empty_text_count_as_not_given() {
        let bare = RegisterModelRequest { url: "a.mar".into(), ..Default::default() };
        let bare = wishes(bare).unwrap();
        assert_eq!(
            (bare.batch_size, bare.max_batch_delay_ms, bare.initial_workers),
            (None, None, None)
        );
        assert_eq!((bare.model_name, bare.handler, bare.runtime), (None, None, None));
        assert_eq!((bare.response_timeout_s, bare.startup_timeout_s), (None, None));
        let full = RegisterModelRequest {
            url: "a.mar".into(),
            model_name: "m".into(),
            batch_size: 2,
            max_batch_delay: 60,
            initial_workers: -1,
            ..Default::default()
        };
        let full = wishes(full).unwrap();
        assert_eq!(
            (full.batch_size, full.max_batch_delay_ms, full.initial_workers),
            (Some(2), Some(60), None)
        );
        let nothing = wishes(RegisterModelRequest::default()).unwrap_err();
        assert_eq!((nothing.status, nothing.message.as_str()), (400, "Parameter url is required."));
    }
}
