//! A request in several bodies, for handlers that take one at a time.

use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use jitney_engine::Model;
use jitney_engine::call::Timing;

use crate::errors::{ErrorCode, Problem};

/// Calls the model with each body; the answers in the order of the bodies, and the timing of the last. A few
/// are under way at a time, so that they share batches and leave room in the queue for others.
///
/// # Errors
/// The first call that fails.
pub(crate) async fn each<F>(
    model: &Model,
    bodies: Vec<Bytes>,
    call: impl Fn(Bytes) -> F,
) -> Result<(Vec<Bytes>, Timing), Problem>
where
    F: Future<Output = Result<(Bytes, Timing), Problem>>,
{
    let settings = model.settings();
    let workers = model.worker_target().1.max(1);
    let together = settings.items_max().saturating_mul(workers);
    let together = together.min(settings.queue_max / 2).max(1) as usize;
    let (mut answers, mut last) = (Vec::with_capacity(bodies.len()), None);
    for some in bodies.chunks(together) {
        let calls = some.iter().map(|body| Box::pin(call(body.clone())));
        for (answer, timing) in all(calls.collect()).await? {
            answers.push(answer);
            last = Some(timing);
        }
    }
    let timing = last.ok_or_else(|| Problem::new(ErrorCode::Internal, "Nothing was run."))?;
    Ok((answers, timing))
}

/// What several futures give, or the first error.
async fn all<T, E>(
    mut futures: Vec<Pin<Box<impl Future<Output = Result<T, E>>>>>,
) -> Result<Vec<T>, E> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut waits = false;
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_some() {
                continue;
            }
            match future.as_mut().poll(context) {
                Poll::Ready(Ok(value)) => *done = Some(value),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => waits = true,
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(Ok(())) }
    })
    .await?;
    Ok(done.into_iter().flatten().collect())
}
