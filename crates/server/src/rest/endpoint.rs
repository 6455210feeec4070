//! What an endpoint is: one row with its path, its methods, the API that offers it, the key that opens it,
//! what it does, its handler and its sentence. `endpoints` has the rows.
//!
//! A row is read by the router, the key check, the operator's plugins, traces, OpenAPI and the reference
//! page. None of them has a list of its own.

use std::future::Future;
use std::pin::Pin;

use http::Method;
use jitney_net::RequestBody;

use super::context::RequestContext;
use crate::auth::{Gate, GuardedOperation};
use crate::plugins::Plugins;
use crate::respond::HttpResult;
use crate::route::{self, Apis, PathNames, PredictRoute};

/// An endpoint of REST.
pub(super) struct Endpoint {
    pub(super) api: EndpointApi,
    pub(super) methods: Methods,
    /// A pattern of [`crate::route::matches`].
    pub(super) path: &'static str,
    /// The first two bytes that its paths have.
    pub(super) two: u16,
    /// The key that opens it; the listener's where it belongs to no API.
    pub(super) key: Option<Gate>,
    /// What it does, as plugins are told.
    pub(super) operation: GuardedOperation,
    pub(super) handler: Handler,
    /// One sentence for who reads about it.
    pub(super) about: &'static str,
    /// How OpenAPI documents name it; not all are listed there.
    pub(super) document: Option<EndpointDocument>,
}

/// An endpoint in OpenAPI documents.
#[derive(Clone, Copy)]
pub(super) struct EndpointDocument {
    pub(super) id: &'static str,
    /// What it takes and answers, by its name in `api.json`; JSON where there is none.
    pub(super) shape: &'static str,
    /// Whether each of its methods is listed, with an id of its own.
    pub(super) each: bool,
    /// The API whose document lists it.
    pub(super) section: EndpointApi,
}

/// The first two bytes of a trimmed path, 0 where there is none.
pub(super) const fn first_two(path: &[u8]) -> u16 {
    match *path {
        [] => 0,
        [only] => u16::from_be_bytes([only, 0]),
        [first, second, ..] => u16::from_be_bytes([first, second]),
    }
}

/// The first two bytes that a path of this pattern has; [`ANY_TWO`] where they are a name's.
pub(super) const fn two_of(pattern: &str) -> u16 {
    match *pattern.as_bytes() {
        [_, b'{' | b'~' | b'*', ..] => ANY_TWO,
        [_, ref path @ ..] => first_two(path),
        [] => ANY_TWO,
    }
}

/// No text begins with it.
const ANY_TWO: u16 = u16::MAX;

/// Which API offers an endpoint. They are searched in the order of the rows: the first that knows a path
/// has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointApi {
    /// On every listener.
    Every,
    /// `/` of management, where it leads to the dashboard.
    Home,
    /// `/` of inference, where it tells that the server lives.
    Alive,
    Sagemaker,
    Inference,
    OpenInference,
    /// The same in `jitney torchserve` only.
    OlderOpenInference,
    /// Triton's model repository, on both listeners.
    Repository,
    Management,
    Metrics,
    /// KServe's version 1, OpenAI's and Triton's generate, in `jitney serve` only.
    OpenAi,
    /// Models under their own names, in `jitney serve` only.
    Natural,
}

impl EndpointApi {
    /// Whether a listener offers it.
    #[inline]
    pub(super) fn is_offered(self, apis: Apis) -> bool {
        match self {
            Self::Every => true,
            Self::Inference => apis.inference,
            Self::Management => apis.management,
            Self::Metrics => apis.metrics,
            Self::Home => apis.management && apis.home,
            Self::Sagemaker => apis.inference && apis.sagemaker,
            Self::OpenInference => apis.inference && apis.oip,
            Self::OlderOpenInference => apis.inference && apis.oip && !apis.natural,
            Self::Repository => apis.oip,
            Self::Alive | Self::OpenAi | Self::Natural => apis.inference && apis.natural,
        }
    }

    /// The API as part of which a path is searched.
    pub(super) fn searched(self) -> Self {
        match self {
            Self::Home | Self::Alive => Self::Every,
            Self::OlderOpenInference => Self::OpenInference,
            Self::Every
            | Self::Sagemaker
            | Self::Inference
            | Self::OpenInference
            | Self::Repository
            | Self::Management
            | Self::Metrics
            | Self::OpenAi
            | Self::Natural => self,
        }
    }
}

/// The methods that an endpoint takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Methods {
    Any,
    Get,
    /// `GET` and `HEAD`.
    Reads,
    Post,
    Put,
    Delete,
    Options,
    /// Those with which people ask for predictions: forms and scripts, curl, `curl -T`. TorchServe runs the
    /// model for any other too.
    Runs,
    /// `POST`, and in TorchServe any.
    Posts,
}

impl Methods {
    #[inline]
    pub(super) fn take(self, method: &Method, apis: Apis) -> bool {
        match self {
            Self::Any => true,
            Self::Get => *method == Method::GET,
            Self::Reads => matches!(*method, Method::GET | Method::HEAD),
            Self::Post => *method == Method::POST,
            Self::Put => *method == Method::PUT,
            Self::Delete => *method == Method::DELETE,
            Self::Options => *method == Method::OPTIONS,
            Self::Runs => {
                !apis.natural || matches!(*method, Method::POST | Method::PUT | Method::GET)
            }
            Self::Posts => !apis.natural || *method == Method::POST,
        }
    }

    /// Those that documents list, the usual one first.
    pub(super) fn listed(self) -> &'static [&'static str] {
        match self {
            Self::Any | Self::Get | Self::Reads => &["get"],
            Self::Post | Self::Posts => &["post"],
            Self::Put => &["put"],
            Self::Delete => &["delete"],
            Self::Options => &["options"],
            Self::Runs => &["post", "put", "get"],
        }
    }
}

/// What a prediction's path makes of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PredictForm {
    /// The header `explain` that the handler sees.
    pub(super) explain: Option<bool>,
    /// Whether the handler sees the header `url_path`.
    pub(super) url_path: bool,
    /// Whether the query's fields become parameters.
    pub(super) query_counts: bool,
    pub(super) body: PredictBody,
}

/// How the body of a prediction is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PredictBody {
    /// As the handler takes it.
    Any,
    /// As the Open Inference Protocol's.
    Tensors,
    /// As KServe's version 1: a list of instances.
    Instances,
    /// As Triton's generate extension: inputs by their names, for one answer.
    Fields,
    /// The same, for a stream of answers.
    FieldsForStream,
}

impl PredictForm {
    pub(super) fn route<'a>(&self, names: &PathNames<'a>) -> PredictRoute<'a> {
        PredictRoute {
            target: names.target(),
            explain: self.explain,
            url_path: self.url_path.then_some(names.rest),
            query_counts: self.query_counts,
            open_inference: !matches!(self.body, PredictBody::Any | PredictBody::Instances),
        }
    }
}

/// A request on its way to its endpoint.
pub(super) struct EndpointCall<'a> {
    pub(super) context: &'a RequestContext<'a>,
    pub(super) names: PathNames<'a>,
    pub(super) body: RequestBody,
    /// Who has to be asked, where the endpoint asks by itself.
    pub(super) plugins: Option<&'a Plugins>,
}

type NowFn = for<'a> fn(&'a RequestContext<'a>, PathNames<'a>) -> HttpResult;
type WaitFn = for<'a> fn(EndpointCall<'a>) -> Pin<Box<dyn Future<Output = HttpResult> + Send + 'a>>;

/// Who answers. Predictions stay in the future of their request; what is rare and waits is boxed, so that
/// this future stays small.
pub(super) enum Handler {
    Predict(PredictForm),
    /// Answers at once.
    Now(NowFn),
    /// The same with a stream, of which there are few at a time.
    Stream(NowFn),
    Waits(WaitFn),
    /// The same; the body may have to name the model, so the endpoint asks the operator's plugin itself.
    Asks(WaitFn),
    /// Answers as the inference port does what follows in the path.
    Tries,
    /// Answers with all rows.
    Rows(fn(&RequestContext<'_>, PathNames<'_>, &[Endpoint]) -> HttpResult),
    /// No endpoint: the API has nothing here, whatever its further rows say.
    Nothing,
}

impl Endpoint {
    /// Lists it in OpenAPI documents.
    pub(super) const fn id(mut self, id: &'static str, shape: &'static str) -> Self {
        let section = self.api;
        self.document = Some(EndpointDocument { id, shape, each: false, section });
        self
    }

    /// The same with each of its methods.
    pub(super) const fn ids(mut self, id: &'static str, shape: &'static str) -> Self {
        let section = self.api;
        self.document = Some(EndpointDocument { id, shape, each: true, section });
        self
    }

    /// Lists it in another API's document than its own.
    pub(super) const fn within(mut self, section: EndpointApi) -> Self {
        if let Some(document) = &mut self.document {
            document.section = section;
        }
        self
    }

    /// The key that opens it on a listener.
    #[inline]
    pub(super) fn gate(&self, apis: Apis) -> Gate {
        match self.key {
            _ if apis.open_health && self.operation.tells_health() => Gate::Open,
            Some(gate) => gate,
            None => Gate::of_listener(apis),
        }
    }

    /// Whether a trimmed path that begins with these bytes may be its own; saves most comparisons.
    #[inline]
    pub(super) fn may_begin_with(&self, two: u16) -> bool {
        self.two == two || self.two == ANY_TWO
    }

    /// Whether a trimmed path begins with its words, up to the first place for a name. Where words follow
    /// that place, the whole path must fit.
    pub(super) fn keeps(&self, path: &str) -> bool {
        let end = self.path.find(['{', '*']).unwrap_or(self.path.len());
        let (words, places) = self.path.split_at(end);
        let words = words.trim_matches(['/', '~']);
        let named = |place: &str| !place.is_empty() && !place.ends_with('}') && place != "**";
        if places.split('/').any(named) {
            return !words.is_empty() && route::matches(self.path, path).is_some();
        }
        let begins = path.get(..words.len()).is_some_and(|it| it.eq_ignore_ascii_case(words));
        begins && !words.is_empty() && matches!(path.as_bytes().get(words.len()), None | Some(b'/'))
    }

    /// Whether `OPTIONS` asks for a description of the model's predictions.
    pub(super) fn is_described(&self) -> bool {
        self.api == EndpointApi::Inference && self.is_prediction()
    }

    pub(super) fn is_prediction(&self) -> bool {
        matches!(self.handler, Handler::Predict(_))
    }

    /// The path for who reads it, with placeholders as traces and documents show them.
    pub(super) fn shown(&self) -> String {
        let path = self.path.strip_suffix("/**").unwrap_or(self.path);
        path.replace(['~', '!', '+'], "").replace('*', "{model}")
    }

    /// Whether its requests are traced: predictions, in all their forms. Health checks, metrics and
    /// management would only hide them.
    pub(super) fn is_traced(&self) -> bool {
        use GuardedOperation::{Explain, Predict, RunWorkflow};
        matches!(self.operation, Predict | Explain | RunWorkflow)
    }
}
