//! Turns the input of a protocol into what the workers understand; past it everything is valid.
//!
//! It runs on the caller's task, before the queue, so that a request that does not fit the model
//! is rejected alone and cannot spoil a batch.

use std::sync::Arc;

use jitney_batcher::Rejection;

use super::endpoints::{EndpointChange, Endpoints, Objective, Reconfigure};
use crate::call::{Input, PARAMETERS_MAX, Parameter, REQUEST_BYTES_MAX};
use crate::error::CallError;
use crate::local::{Decoded, LocalModel};
use crate::pending::{EndpointIndex, Payload};
use crate::settings::ModelSettings;
use crate::store::Api;
use crate::tensors::NamedTensor;

/// The group of requests that must be run alone; each of them fills a batch.
pub(super) const ALONE: u16 = u16::MAX;

/// How a model takes its inputs in.
pub(crate) enum Intake {
    /// Python handlers decode for themselves.
    Python,
    /// A definition in Python: requests of different endpoints never share a batch.
    Defined(Box<Endpoints>),
    /// A model in this process, which decodes and checks requests here; and whether each of them runs whole and
    /// alone, although its shapes have an open first dimension, because its rows belong together.
    Local(Arc<dyn LocalModel>, bool),
}

/// An input that fits.
pub(crate) struct AcceptedInput {
    pub(crate) payload: Payload,
    /// The items that a batch has of it.
    pub(crate) items: u32,
    /// The items that it brings beyond them.
    pub(crate) beyond: u32,
    pub(crate) group: u16,
    /// Whether its items may be run in different batches.
    pub(crate) splits: bool,
    /// The latency to keep.
    pub(crate) objective: Objective,
    /// How long its items are, where that is seen here.
    pub(crate) length: Option<u64>,
    /// What it costs, where that is seen here.
    pub(crate) cost: Option<u64>,
    /// Where its endpoint is counted, for models with several.
    pub(crate) endpoint: Option<EndpointIndex>,
    /// Whether a call takes others with it, so that those that come at once are run at once.
    pub(crate) takes_batches: bool,
}

impl Intake {
    /// Takes in an input of so many bytes that says how many items it brings, or does not. Whoever counts them,
    /// they are never more than the bytes can hold.
    pub(crate) fn accept(
        &self,
        mut input: Box<Input>,
        bytes: u64,
        claimed: Option<u32>,
        batch_size: u32,
    ) -> Result<AcceptedInput, CallError> {
        match self {
            Self::Python => {
                let accepted = Self::accept_raw(input, batch_size)?;
                // Its handler takes it whole.
                if let Some(items) = claimed.filter(|items| *items > batch_size) {
                    let most = format!("a batch of this model has at most {batch_size}");
                    return Err(too_many(items.into(), &most));
                }
                accepted.counting(claimed, bytes, batch_size)
            }
            Self::Defined(endpoints) => {
                endpoints.direct(&mut input);
                let place = endpoints.index(&input.route).map_err(CallError::UnknownEndpoint)?;
                endpoints.check(place, &input).map_err(CallError::BadInput)?;
                let objective = endpoints.complete(place, &mut input.route);
                let size = endpoints.size_of(place, &input);
                input.parameters.iter_mut().for_each(|parameter| parameter.value.settle());
                let group = group_of(&endpoints.api, place, size.bucket);
                let accepted = Self::accept_raw(input, batch_size)?;
                let group = accepted.group.max(group);
                let endpoint = endpoints.counted(place);
                let takes_batches = endpoints.takes_batches(place);
                let cost = size.cost;
                let accepted =
                    AcceptedInput { group, objective, cost, endpoint, takes_batches, ..accepted };
                let claimed = claimed.filter(|_| size.items.is_none());
                if let Some(items) = claimed.filter(|items| *items > 1 && !takes_batches) {
                    return Err(too_many(items.into(), "its endpoint takes one at a time"));
                }
                accepted.counting(size.items.or(claimed), bytes, batch_size)
            }
            Self::Local(model, whole) => {
                let id = std::mem::take(&mut input.id).into_boxed_str();
                let sequence = input.route.sequence.clone();
                let Decoded { input, items, group, splits, length } =
                    model.decode(*input).map_err(CallError::BadInput)?;
                let (items, splits, length) =
                    if *whole { (1, false, None) } else { (items, splits, length) };
                check_held(items, bytes)?;
                let (payload, objective) =
                    (Payload::Decoded(input, id, sequence), Objective::Models);
                let (beyond, cost, endpoint) = (0, None, None);
                Ok(AcceptedInput {
                    payload,
                    items,
                    beyond,
                    group,
                    splits,
                    objective,
                    length,
                    cost,
                    endpoint,
                    takes_batches: true,
                })
            }
        }
    }

    /// The endpoints of a definition.
    pub(crate) fn endpoints(&self) -> Option<&Endpoints> {
        match self {
            Self::Defined(endpoints) => Some(endpoints),
            Self::Python | Self::Local(..) => None,
        }
    }

    /// What a change means for the endpoints.
    pub(crate) fn tune(
        &self,
        change: &Reconfigure,
        now: &ModelSettings,
    ) -> Result<EndpointChange, String> {
        match (self.endpoints(), &change.endpoint) {
            (Some(endpoints), _) => endpoints.tune(change, now),
            (None, None) => Ok(EndpointChange::default()),
            (None, Some(_)) => {
                Err("endpoint= is for models with endpoints of their own: those that \
                     are written with the jitney package"
                    .to_owned())
            }
        }
    }

    /// The model's description of its own API, if it brought one.
    pub(crate) fn api(&self) -> Option<&Api> {
        self.endpoints().map(|endpoints| &endpoints.api)
    }

    /// A raw input fits when the frame to the worker can carry it.
    fn accept_raw(input: Box<Input>, batch_size: u32) -> Result<AcceptedInput, CallError> {
        let too_long = |parameter: &Parameter| {
            parameter.name.len().max(parameter.content_type.len()) > usize::from(u16::MAX)
        };
        let tensors = input.tensors.iter();
        let names = tensors.clone().flat_map(|it| it.inputs.iter().map(NamedTensor::name));
        let asked = tensors.flat_map(|it| it.outputs.iter().map(|name| &**name));
        let count = input.parameters.len() + names.clone().count() + asked.clone().count();
        if count > PARAMETERS_MAX
            || input.parameters.iter().any(too_long)
            || names.chain(asked).any(|name| name.len() > usize::from(u16::MAX))
        {
            return Err(CallError::BadInput(format!(
                "a request may have at most {PARAMETERS_MAX} parameters with names of at most {} bytes",
                u16::MAX
            )));
        }
        if input.weight() > REQUEST_BYTES_MAX {
            let reason = Rejection::TooLarge;
            return Err(CallError::Rejected { reason, retry_after: None });
        }
        let (items, group) = if input.route.is_alone() { (batch_size, ALONE) } else { (1, 0) };
        let (payload, objective) = (Payload::Raw(input), Objective::Models);
        Ok(AcceptedInput {
            payload,
            items,
            beyond: 0,
            group,
            splits: false,
            objective,
            length: None,
            cost: None,
            endpoint: None,
            takes_batches: true,
        })
    }
}

impl AcceptedInput {
    /// With the items that were seen or claimed. One that brings more than a batch holds runs alone: its worker
    /// calls the function several times. What it teaches about time must not count for others.
    fn counting(self, items: Option<u32>, bytes: u64, batch_size: u32) -> Result<Self, CallError> {
        let items = items.unwrap_or(1).max(1);
        check_held(items, bytes)?;
        Ok(match items.checked_sub(batch_size) {
            _ if self.group == ALONE => self,
            Some(beyond) if beyond > 0 => Self { items: batch_size, beyond, group: ALONE, ..self },
            Some(_) | None => Self { items, ..self },
        })
    }
}

/// Whether so many bytes can hold so many items; one item may have none.
fn check_held(items: u32, bytes: u64) -> Result<(), CallError> {
    if items > 1 && u64::from(items) > bytes {
        return Err(too_many(items.into(), &format!("its {bytes} bytes cannot hold so many")));
    }
    Ok(())
}

/// A request that brings more items than `most` lets it.
#[cold]
pub(super) fn too_many(items: u64, most: &str) -> CallError {
    CallError::BadInput(format!(
        "the request says that it brings {items} items, and {most}; send fewer at a time"
    ))
}

/// Buckets of a definition that are kept apart. Two that meet may share a batch, which the worker takes
/// apart.
const BUCKETS: u64 = 4096;

/// The group of the endpoint that a request asks for: its number among the model's, from 1. Behind
/// those are the groups of buckets.
fn group_of(api: &Api, place: Option<usize>, bucket: Option<u64>) -> u16 {
    let (endpoints, place) = (api.endpoints.len() as u64, place.map(|place| place as u64));
    let group = match (place, bucket) {
        (_, Some(bucket)) => {
            // So that the first buckets of all endpoints do not meet.
            let shift = place.unwrap_or(endpoints).wrapping_mul(BUCKETS / 8 + 1);
            1 + endpoints + bucket.wrapping_add(shift) % BUCKETS
        }
        (Some(place), None) if endpoints > 1 => place + 1,
        (Some(_) | None, None) => 0,
    };
    u16::try_from(group).unwrap_or(ALONE - 1).min(ALONE - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::call::{CallRoute, HeaderBlock};
    use crate::tensors::{Datatype, TensorRequest};

    fn group(asked: Option<&str>) -> Option<u16> {
        let endpoints = vec!["one".to_owned(), "two".to_owned()];
        let api = Api { endpoints, ..Api::default() };
        let settings = ModelSettings { batch_size: 8, ..crate::testkit::settings() };
        let intake = Intake::Defined(Box::new(Endpoints::new(api, &settings, &BTreeMap::new())));
        let headers = HeaderBlock::new();
        let route = CallRoute { endpoint: asked.map(Into::into), ..CallRoute::default() };
        let input =
            Input { id: String::new(), headers, route, parameters: Vec::new(), tensors: None };
        intake.accept(Box::new(input), 0, None, 8).ok().map(|accepted| accepted.group)
    }

    #[test]
    fn a_request_that_no_frame_has_room_for_is_too_large() {
        let accept = |bytes: u64| {
            // The pages are never touched.
            let value = vec![0; usize::try_from(bytes).expect("fits")].into();
            let parameters =
                vec![Parameter { name: "body".into(), content_type: "".into(), value }];
            let headers = HeaderBlock::default();
            let input = Input {
                id: String::new(),
                headers,
                route: CallRoute::default(),
                parameters,
                tensors: None,
            };
            Intake::Python.accept(Box::new(input), bytes, None, 1).map(drop)
        };
        assert!(accept(REQUEST_BYTES_MAX).is_ok());
        let error = accept(REQUEST_BYTES_MAX + 1).expect_err("too large");
        assert!(matches!(error, CallError::Rejected { reason: Rejection::TooLarge, .. }));
    }

    #[test]
    fn buckets_are_kept_apart_behind_the_endpoints() {
        let named = |names: &[&str]| {
            let endpoints = names.iter().map(|name| (*name).to_owned()).collect();
            Api { endpoints, ..Api::default() }
        };
        let (one, two) = (named(&["one"]), named(&["one", "two"]));
        let mut groups: Vec<_> =
            (0..BUCKETS).map(|bucket| group_of(&one, Some(0), Some(bucket))).collect();
        groups.sort_unstable();
        groups.dedup();
        assert_eq!((groups.len() as u64, groups[0]), (BUCKETS, 2));
        assert_eq!(group_of(&one, Some(0), Some(u64::MAX)), group_of(&one, Some(0), Some(4095)));
        let first = |place| group_of(&two, Some(place), Some(7));
        assert!(first(0) != first(1) && first(0).min(first(1)) > 2);
    }

    #[test]
    fn a_request_has_the_items_that_it_says_or_that_are_seen() {
        let input = || {
            Box::new(Input {
                id: String::new(),
                headers: HeaderBlock::new(),
                route: CallRoute::default(),
                parameters: vec![Parameter {
                    name: "body".into(),
                    content_type: "application/json".into(),
                    value: "[1, 2, 3, 4, 5]".into(),
                }],
                tensors: None,
            })
        };
        let counts = |it: AcceptedInput| (it.items, it.beyond, it.group);
        let archive = |bytes, said| Intake::Python.accept(input(), bytes, said, 8).map(counts).ok();
        assert_eq!(archive(0, None), Some((1, 0, 0)));
        assert_eq!([archive(15, Some(8)), archive(15, Some(9))], [Some((8, 0, 0)), None]);
        assert_eq!([archive(5, Some(5)), archive(5, Some(6))], [Some((5, 0, 0)), None]);
        let sizes =
            r#"{"params": [{"name": "x", "form": "array", "required": true, "rows": true}]}"#;
        let sizes = [("call".to_owned(), serde_json::from_str(sizes).expect("sizes"))];
        let api = Api { endpoints: vec!["call".to_owned()], sizes: sizes.into(), ..Api::default() };
        let settings = ModelSettings { batch_size: 8, ..crate::testkit::settings() };
        let defined = Intake::Defined(Box::new(Endpoints::new(api, &settings, &BTreeMap::new())));
        let items =
            |said, batch_size| defined.accept(input(), 15, said, batch_size).map(counts).ok();
        assert_eq!(items(Some(3), 8), Some((5, 0, 0)), "what is seen counts");
        assert_eq!([items(None, 5), items(None, 4)], [Some((5, 0, 0)), Some((4, 1, ALONE))]);
    }

    #[test]
    fn tensors_that_cannot_be_joined_have_groups_of_their_own() {
        let shop = r#"{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1], "rows": true,
            "checked": true}], "items": "rows"}"#;
        let tensors: Vec<_> = ["shop", "other"]
            .map(|name| (name.to_owned(), serde_json::from_str(shop).expect("tensors")))
            .into();
        let endpoints = vec!["shop".to_owned(), "other".to_owned()];
        let api = Api { endpoints, tensors: tensors.into_iter().collect(), ..Api::default() };
        let settings = ModelSettings { batch_size: 8, ..crate::testkit::settings() };
        let defined = Intake::Defined(Box::new(Endpoints::new(api, &settings, &BTreeMap::new())));
        let accept = |endpoint: Option<&str>, shape: &[usize]| {
            let data = vec![0; 4 * shape.iter().product::<usize>()].into();
            let x = NamedTensor::new("x", Datatype::Fp32, shape, data).expect("fills it");
            let tensors = TensorRequest { inputs: vec![x], outputs: Vec::new() };
            let input = Input {
                id: String::new(),
                headers: HeaderBlock::new(),
                route: CallRoute { endpoint: endpoint.map(Into::into), ..CallRoute::default() },
                parameters: Vec::new(),
                tensors: Some(Arc::new(tensors)),
            };
            defined.accept(Box::new(input), 480, None, 8)
        };
        let accepted = |endpoint, shape: &[usize]| {
            let accepted = accept(endpoint, shape).expect("fits");
            (accepted.items, accepted.beyond, accepted.group)
        };
        let (items, beyond, group) = accepted(None, &[2, 3]);
        assert_eq!((items, beyond), (2, 0));
        assert_eq!(accepted(Some("shop"), &[5, 3]), (5, 0, group), "the first endpoint is meant");
        assert_ne!(accepted(None, &[2, 4]).2, group);
        assert_ne!(accepted(Some("other"), &[2, 3]).2, group);
        assert_eq!(accepted(None, &[20, 3]), (8, 12, ALONE));
        let wrong = accept(None, &[3]).err();
        assert!(
            matches!(wrong, Some(CallError::BadInput(text)) if text.contains("FP32 of shape [3] came"))
        );
    }

    #[test]
    fn endpoints_of_a_definition_have_groups_of_their_own() {
        let asked = [Some("one"), Some("two"), Some(""), None];
        assert_eq!(asked.map(group), [1, 2, 0, 0].map(Some));
        assert_eq!(group(Some("?")), None, "there is no such endpoint");
    }
}
