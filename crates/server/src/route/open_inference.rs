//! The paths of the Open Inference Protocol and of Triton's extensions to it, below `/v2`. Inference itself
//! is a prediction like those of other protocols.

use http::Method;

use super::model_ref::ModelRef;

/// An endpoint of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenInferenceRoute<'a> {
    /// The server lives.
    Live,
    /// The server is ready.
    Ready,
    /// What server this is.
    Server,
    /// A model is ready.
    ModelReady(ModelRef<'a>),
    /// What a model takes and gives.
    Metadata(ModelRef<'a>),
    /// Triton's configuration of a model.
    Config(ModelRef<'a>),
    /// What the batches of a model came to, or of all.
    Statistics(Option<ModelRef<'a>>),
    /// Settings of traces, of a model or of all.
    TraceSettings {
        /// Whether they are to change.
        changes: bool,
    },
    /// Settings of the log.
    LogSettings {
        /// Whether they are to change.
        changes: bool,
    },
    /// Memory that a client shares.
    SharedMemory(SharedMemoryRoute<'a>),
    /// A prediction.
    Infer(ModelRef<'a>),
    /// Another method than the path takes.
    WrongMethod,
    /// Nothing here.
    Unknown,
}

/// What is done with memory that a client shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMemoryRoute<'a> {
    /// Whether it is memory of a GPU.
    pub cuda: bool,
    /// The region; all if none is named.
    pub region: Option<&'a str>,
    /// What is done with it.
    pub action: SharedMemoryAction,
}

/// What can be done with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedMemoryAction {
    /// Which ones are registered.
    Status,
    /// A new one.
    Register,
    /// The end of one.
    Unregister,
}

/// Finds the endpoint of a path below `/v2`, which has at most three segments: the third holds whatever
/// follows the second.
pub(super) fn find<'a>(method: &Method, below: &[&'a str]) -> OpenInferenceRoute<'a> {
    let get = |route| if reads(method) { route } else { OpenInferenceRoute::WrongMethod };
    let post = |route| if method == Method::POST { route } else { OpenInferenceRoute::WrongMethod };
    let either = |route| if reads(method) { route } else { post(route) };
    let changes = !reads(method);
    match *below {
        [] => get(OpenInferenceRoute::Server),
        ["health", "live"] => get(OpenInferenceRoute::Live),
        ["health", "ready"] => get(OpenInferenceRoute::Ready),
        ["models", "stats"] => get(OpenInferenceRoute::Statistics(None)),
        ["models", model] => get(OpenInferenceRoute::Metadata(ModelRef { model, version: None })),
        ["models", _, "trace/setting"] | ["trace", "setting"] => {
            either(OpenInferenceRoute::TraceSettings { changes })
        }
        ["logging"] => either(OpenInferenceRoute::LogSettings { changes }),
        ["models", model, rest] => of_model(method, model, rest),
        ["systemsharedmemory", action] => shared(method, false, None, action),
        ["cudasharedmemory", action] => shared(method, true, None, action),
        ["systemsharedmemory", "region", rest] => region(method, false, rest),
        ["cudasharedmemory", "region", rest] => region(method, true, rest),
        _ => OpenInferenceRoute::Unknown,
    }
}

fn reads(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

fn of_model<'a>(method: &Method, model: &'a str, rest: &'a str) -> OpenInferenceRoute<'a> {
    let (version, endpoint) = match rest.strip_prefix("versions/") {
        None => (None, rest),
        Some(versioned) => match versioned.split_once('/') {
            None => (Some(versioned), ""),
            Some((version, endpoint)) => (Some(version), endpoint),
        },
    };
    let target = ModelRef { model, version };
    let route = match endpoint {
        "" => OpenInferenceRoute::Metadata(target),
        "ready" => OpenInferenceRoute::ModelReady(target),
        "config" => OpenInferenceRoute::Config(target),
        "stats" => OpenInferenceRoute::Statistics(Some(target)),
        "infer" if method == Method::POST => return OpenInferenceRoute::Infer(target),
        "infer" => return OpenInferenceRoute::WrongMethod,
        _ => return OpenInferenceRoute::Unknown,
    };
    if reads(method) { route } else { OpenInferenceRoute::WrongMethod }
}

fn region<'a>(method: &Method, cuda: bool, rest: &'a str) -> OpenInferenceRoute<'a> {
    match rest.rsplit_once('/') {
        Some((region, action)) => shared(method, cuda, Some(region), action),
        None => OpenInferenceRoute::Unknown,
    }
}

fn shared<'a>(
    method: &Method,
    cuda: bool,
    region: Option<&'a str>,
    action: &str,
) -> OpenInferenceRoute<'a> {
    let action = match action {
        "status" => SharedMemoryAction::Status,
        "register" if region.is_some() => SharedMemoryAction::Register,
        "unregister" => SharedMemoryAction::Unregister,
        _ => return OpenInferenceRoute::Unknown,
    };
    let fits = match action {
        SharedMemoryAction::Status => reads(method),
        SharedMemoryAction::Register | SharedMemoryAction::Unregister => method == Method::POST,
    };
    if !fits {
        return OpenInferenceRoute::WrongMethod;
    }
    OpenInferenceRoute::SharedMemory(SharedMemoryRoute { cuda, region, action })
}
