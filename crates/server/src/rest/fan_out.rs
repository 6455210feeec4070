//! One HTTP request that asks for several answers: each of its values is a request of its own to the model,
//! so that they are batched with each other and with those of other clients. They wait for space in the
//! queue instead of being rejected there. The first failure is the answer to all, and the others end.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use jitney_engine::Model;
use jitney_engine::call::{Answer, Parameter, Timing};

use super::context::RequestContext;
use super::input;
use crate::errors::{ErrorCode, Problem};
use crate::inference::InferenceRequest;
use crate::route::PredictRoute;

/// Values of one request that are with the model at a time: two batches for each worker, so that it never
/// waits for the next, and no more than half of the queue, which others need too.
fn at_a_time(model: &Model) -> usize {
    let (settings, workers) = (model.settings(), model.worker_target().1.max(1));
    let batches = settings.items_max().saturating_mul(workers).saturating_mul(2);
    batches.min(settings.queue_max / 2).max(1) as usize
}

/// The model's answers, in the order of the values. A failure of one of several says which.
pub(super) async fn call_each(
    context: &RequestContext<'_>,
    model: &Arc<Model>,
    route: &PredictRoute<'_>,
    values: Vec<Parameter>,
) -> Result<Vec<Answer>, Problem> {
    let mut options = context.options()?;
    let count = values.len();
    if count > 1 {
        // What the client says holds for all of them together.
        (options.claim.items, options.claim.cost) = (None, None);
    }
    let bytes = values.iter().map(|value| value.value.len() as u64).sum();
    let (service, quota) = (&context.state.inference, context.caller.quota().cloned());
    let _charged = service.charge(quota, model.name(), count, bytes)?;
    let call = |at: usize, value: Parameter| {
        let headers = input::headers(&context.parts.headers, context.caller, &options.claim);
        let request = InferenceRequest {
            target: route.target,
            options: options.clone(),
            input: input::input(context.id, headers, route, vec![value]),
            client: context.caller.name(),
            key: Some(context.request_key()),
            quota: None,
            origin: context.origin(),
            wait_for_queue: true,
            admitted: false,
            held: None,
            trace: context.trace.cloned(),
        };
        async move { (at, context.state.inference.predict(model, request).await) }
    };
    let mut values = values.into_iter().enumerate();
    let (most, mut running) = (at_a_time(model), FuturesUnordered::new());
    let mut answers: Vec<Option<Answer>> = std::iter::repeat_with(|| None).take(count).collect();
    loop {
        while let Some((at, value)) = (running.len() < most).then(|| values.next()).flatten() {
            running.push(call(at, value));
        }
        let Some((at, answer)) = running.next().await else { break };
        let answer = answer.and_then(|answer| whole(model, answer));
        answers[at] = Some(answer.map_err(|problem| of_value(problem, at, count))?);
    }
    Ok(answers.into_iter().flatten().collect())
}

/// The timing of the answer that took longest.
pub(super) fn longest(answers: &[Answer]) -> Option<&Timing> {
    let timings = answers.iter().map(|answer| &answer.timing);
    timings.max_by_key(|timing| timing.queue + timing.compute)
}

/// An answer that is complete and that the model calls a success.
fn whole(model: &Model, answer: Answer) -> Result<Answer, Problem> {
    if answer.stream.is_some() {
        let message = format!(
            "The model {:?} streams its answers: ask for one at a time under /predictions/{}.",
            model.name(),
            model.name()
        );
        return Err(Problem::bad_request(message));
    }
    match answer.output.status {
        Some((status @ (..200 | 300..), _)) => {
            let message = String::from_utf8_lossy(&answer.output.body).into_owned();
            Err(Problem { status, ..Problem::new(ErrorCode::Prediction, message) })
        }
        Some(_) | None => Ok(answer),
    }
}

fn of_value(problem: Problem, at: usize, count: usize) -> Problem {
    if count == 1 {
        return problem;
    }
    Problem { message: format!("value {at} of {count}: {}", problem.message), ..problem }
}
