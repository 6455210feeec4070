//! TorchServe's management service: what `crate::management` does. gRPC has no absent values, so zero and
//! the empty text stand for them.

use std::sync::Arc;

use jitney_engine::settings::RegisterOptions;
use jitney_proto::management::management_ap_is_service_server::ManagementApIsService;
use jitney_proto::management::{
    DescribeModelRequest, ListModelsRequest, ManagementResponse, RegisterModelRequest,
    ScaleWorkerRequest, SetDefaultRequest, UnregisterModelRequest,
};
use jitney_settings::from_parameters;
use tonic::{Request, Response, Status};

use super::request::{GrpcRequest, target};
use super::status::model_api_disabled;
use crate::errors::Problem;
use crate::management::{self, Notice, Scaling};
use crate::respond;
use crate::route::ModelRef;
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
        let (mut request, message) = GrpcRequest::open(request)?;
        let target = target(named(&message.model_name)?, &message.model_version);
        request.authorize_about(&self.state.inference, target).await?;
        let caller = (request.caller.id.text(), request.caller.origin());
        let caller = message.customized.then_some(caller);
        let described = management::describe(&self.state, target, caller).await?;
        text_message(respond::pretty(&described))
    }

    async fn list_models(&self, request: Request<ListModelsRequest>) -> ManagementResult {
        let message = GrpcRequest::message(request).await?;
        let ListModelsRequest { limit, next_page_token } = message;
        let limit = Some(limit).filter(|limit| *limit > 0);
        let page = management::list(&self.state.engine, limit, Some(next_page_token));
        text_message(respond::pretty(&page))
    }

    async fn register_model(&self, request: Request<RegisterModelRequest>) -> ManagementResult {
        let message = GrpcRequest::message(request).await?;
        self.need_model_api()?;
        let synchronous = message.synchronous;
        let options = options(message)?;
        notice(management::register(&self.state, options, synchronous, None).await)
    }

    async fn scale_worker(&self, request: Request<ScaleWorkerRequest>) -> ManagementResult {
        let (mut request, message) = GrpcRequest::open(request)?;
        let target = target(named(&message.model_name)?, &message.model_version);
        request.authorize_about(&self.state.inference, target).await?;
        let range = management::range(given(message.min_worker), given(message.max_worker))?;
        let scaling = Scaling {
            target,
            change: None,
            workers: Some(range),
            synchronous: message.synchronous,
        };
        notice(management::scale(&self.state, scaling).await)
    }

    async fn set_default(&self, request: Request<SetDefaultRequest>) -> ManagementResult {
        let (mut request, message) = GrpcRequest::open(request)?;
        let SetDefaultRequest { model_name, model_version } = &message;
        let target = ModelRef { model: named(model_name)?, version: Some(model_version) };
        request.authorize_about(&self.state.inference, target).await?;
        notice(management::set_default(&self.state.engine, model_name, model_version))
    }

    async fn unregister_model(&self, request: Request<UnregisterModelRequest>) -> ManagementResult {
        let (mut request, message) = GrpcRequest::open(request)?;
        let target = target(&message.model_name, &message.model_version);
        request.authorize_about(&self.state.inference, target).await?;
        self.need_model_api()?;
        named(&message.model_name)?;
        notice(management::unregister(&self.state.engine, target).await)
    }
}

fn options(message: RegisterModelRequest) -> Result<RegisterOptions, Problem> {
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let url =
        text(message.url).ok_or_else(|| Problem::bad_request("Parameter url is required."))?;
    let numbers = [
        ("batch_size", message.batch_size),
        ("max_batch_delay", message.max_batch_delay),
        ("initial_workers", message.initial_workers),
        ("response_timeout", message.response_timeout),
        ("startup_timeout", message.startup_timeout),
    ];
    let numbers = numbers.map(|(name, number)| (name, number, number.to_string()));
    let given = |name: &str| {
        let known = numbers.iter().find(|(known, number, _)| *known == name && *number > 0);
        known.map(|(.., text)| text.as_str())
    };
    let settings = from_parameters(given, false).map_err(Problem::bad_request)?;
    Ok(RegisterOptions {
        url,
        model_name: text(message.model_name),
        handler: text(message.handler),
        runtime: text(message.runtime),
        settings,
        s3_sse_kms: message.s3_sse_kms,
        ..RegisterOptions::default()
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
    use jitney_settings::model::{MAX_BATCH_DELAY, MAX_BATCH_SIZE, WORKERS};

    use super::*;

    #[test]
    fn zero_and_the_empty_text_count_as_not_given() {
        let bare = RegisterModelRequest { url: "a.mar".into(), ..Default::default() };
        let bare = options(bare).unwrap();
        assert!(bare.settings.is_empty());
        assert_eq!((bare.model_name, bare.handler, bare.runtime), (None, None, None));
        let full = RegisterModelRequest {
            url: "a.mar".into(),
            model_name: "m".into(),
            batch_size: 2,
            max_batch_delay: 60,
            initial_workers: -1,
            ..Default::default()
        };
        let full = options(full).unwrap();
        let shown = [&MAX_BATCH_SIZE, &MAX_BATCH_DELAY, &WORKERS].map(|it| full.settings.show(it));
        assert_eq!(shown, [Some("2".to_owned()), Some("60".to_owned()), None]);
        let nothing = options(RegisterModelRequest::default()).unwrap_err();
        assert_eq!((nothing.status, nothing.message.as_str()), (400, "Parameter url is required."));
    }
}
