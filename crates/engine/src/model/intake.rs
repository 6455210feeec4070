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
use crate::pending::Payload;
use crate::settings::ModelSettings;
use crate::store::Api;

/// The group of requests that must be run alone; each of them fills a batch.
pub(super) const ALONE: u16 = u16::MAX;

/// How a model takes its inputs in.
pub(crate) enum Intake {
    /// Python handlers decode for themselves.
    Python,
    /// A definition in Python: requests of different endpoints never share a batch.
    Defined(Endpoints),
    /// A model in this process, which decodes and checks requests here.
    Local(Arc<dyn LocalModel>),
}

/// An input that fits.
pub(crate) struct AcceptedInput {
    pub(crate) payload: Payload,
    pub(crate) items: u32,
    pub(crate) group: u16,
    /// Whether its items may be run in different batches.
    pub(crate) splits: bool,
    /// The latency to keep.
    pub(crate) objective: Objective,
    /// How long its items are, where that is seen here.
    pub(crate) length: Option<u64>,
}

impl Intake {
    pub(crate) fn accept(
        &self,
        mut input: Input,
        batch_size: u32,
    ) -> Result<AcceptedInput, CallError> {
        match self {
            Self::Python => Self::accept_raw(input, batch_size),
            Self::Defined(endpoints) => {
                let place = endpoints.index(&input.route);
                let objective = endpoints.complete(place, &mut input.route);
                let group = group_of(&endpoints.api, place);
                let accepted = Self::accept_raw(input, batch_size)?;
                Ok(AcceptedInput { group: accepted.group.max(group), objective, ..accepted })
            }
            Self::Local(model) => {
                let Decoded { input, items, group, splits, length } =
                    model.decode(input).map_err(CallError::BadInput)?;
                let (payload, objective) = (Payload::Decoded(input), Objective::Models);
                Ok(AcceptedInput { payload, items, group, splits, objective, length })
            }
        }
    }

    /// The endpoints of a definition.
    pub(crate) fn endpoints(&self) -> Option<&Endpoints> {
        match self {
            Self::Defined(endpoints) => Some(endpoints),
            Self::Python | Self::Local(_) => None,
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
    fn accept_raw(input: Input, batch_size: u32) -> Result<AcceptedInput, CallError> {
        let too_long = |parameter: &Parameter| {
            parameter.name.len().max(parameter.content_type.len()) > usize::from(u16::MAX)
        };
        if input.parameters.len() > PARAMETERS_MAX || input.parameters.iter().any(too_long) {
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
        Ok(AcceptedInput { payload, items, group, splits: false, objective, length: None })
    }
}

/// The group of the endpoint that a request asks for: its number among the model's, from 1.
fn group_of(api: &Api, place: Option<usize>) -> u16 {
    match place {
        Some(place) if api.endpoints.len() > 1 => u16::try_from(place + 1).unwrap_or(ALONE - 1),
        Some(_) | None => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::call::{CallRoute, HeaderBlock};

    fn group(asked: Option<&str>) -> u16 {
        let endpoints = vec!["one".to_owned(), "two".to_owned()];
        let api = Api { endpoints, ..Api::default() };
        let settings = ModelSettings { batch_size: 8, ..crate::testkit::settings() };
        let intake = Intake::Defined(Endpoints::new(api, &settings, &BTreeMap::new()));
        let headers = HeaderBlock::new();
        let route = CallRoute { endpoint: asked.map(Into::into), ..CallRoute::default() };
        let input = Input { id: String::new(), headers, route, parameters: Vec::new() };
        intake.accept(input, 8).ok().map(|accepted| accepted.group).expect("fits")
    }

    #[test]
    fn a_request_that_no_frame_has_room_for_is_too_large() {
        let accept = |bytes: u64| {
            // The pages are never touched.
            let value = vec![0; usize::try_from(bytes).expect("fits")].into();
            let parameters =
                vec![Parameter { name: "body".into(), content_type: "".into(), value }];
            let headers = HeaderBlock::default();
            let input =
                Input { id: String::new(), headers, route: CallRoute::default(), parameters };
            Intake::Python.accept(input, 1).map(drop)
        };
        assert!(accept(REQUEST_BYTES_MAX).is_ok());
        let error = accept(REQUEST_BYTES_MAX + 1).expect_err("too large");
        assert!(matches!(error, CallError::Rejected { reason: Rejection::TooLarge, .. }));
    }

    #[test]
    fn endpoints_of_a_definition_have_groups_of_their_own() {
        let asked = [Some("one"), Some("two"), Some("?"), None];
        assert_eq!(asked.map(group), [1, 2, 0, 0]);
    }
}
