//! The standard health service, `grpc.health.v1`, for load balancers and Kubernetes.
//!
//! The whole server and each of its services have the same health. A watcher gets a change within
//! 250 ms. Its stream ends when the server drains, so that it does not delay the end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use jitney_engine::Engine;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

/// How often a watched state is checked.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// The service.
pub(super) struct HealthService {
    engine: Arc<Engine>,
    services: Vec<&'static str>,
}

impl HealthService {
    pub(super) fn new(engine: Arc<Engine>, services: Vec<&'static str>) -> Self {
        Self { engine, services }
    }

    fn knows(&self, service: &str) -> bool {
        service.is_empty() || self.services.contains(&service)
    }
}

fn serving(engine: &Engine) -> ServingStatus {
    if engine.is_ready() { ServingStatus::Serving } else { ServingStatus::NotServing }
}

#[tonic::async_trait]
impl health_server::Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !self.knows(&request.get_ref().service) {
            return Err(Status::not_found("service not registered"));
        }
        Ok(Response::new(HealthCheckResponse { status: serving(&self.engine).into() }))
    }

    type WatchStream = Watch;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Watch>, Status> {
        let known = self.knows(&request.get_ref().service);
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Ok(Response::new(Watch { engine: Arc::clone(&self.engine), known, ticks, last: None }))
    }
}

/// A watcher's stream: the state now, then every change of it.
pub(super) struct Watch {
    engine: Arc<Engine>,
    known: bool,
    ticks: Interval,
    last: Option<ServingStatus>,
}

impl Stream for Watch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            std::task::ready!(self.ticks.poll_tick(context));
            let now =
                if self.known { serving(&self.engine) } else { ServingStatus::ServiceUnknown };
            if self.last != Some(now) {
                self.last = Some(now);
                return Poll::Ready(Some(Ok(HealthCheckResponse { status: now.into() })));
            }
            if self.engine.draining() {
                return Poll::Ready(None);
            }
        }
    }
}
