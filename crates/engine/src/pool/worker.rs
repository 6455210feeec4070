//! What the pool asks of a worker, whatever it is: a Python process, an ONNX session, a script of
//! the test kit. The pool supervises; a worker only runs one batch at a time and can be ended.

use std::future::Future;
use std::pin::Pin;

use crate::call::Rider;
use crate::outcome::{BatchOutcome, Death, LaunchError};

/// A boxed future that may cross threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts workers of one model version.
pub trait Launcher: Send + Sync + 'static {
    /// Starts one worker; resolves when it has loaded the model. Dropping the future ends the
    /// worker, which is how the pool enforces the start-up timeout.
    fn launch(&self, worker: u32) -> BoxFuture<'static, Result<Box<dyn Worker>, LaunchError>>;
}

/// A loaded worker.
pub trait Worker: Send + 'static {
    /// The process id, for workers that are processes.
    fn pid(&self) -> Option<u32>;

    /// Runs one batch to its end. An error means that the worker is dead; dropping the future
    /// before it resolves leaves the worker unusable, so the pool ends it then.
    fn run<'a>(
        &'a mut self,
        batch: u64,
        riders: &'a [Rider],
    ) -> BoxFuture<'a, Result<BatchOutcome, Death>>;

    /// Resolves when an idle worker dies. Must be cancel-safe.
    fn died(&mut self) -> BoxFuture<'_, Death>;

    /// Ends the worker: politely when it is idle, by force otherwise.
    fn end(self: Box<Self>, force: bool) -> BoxFuture<'static, ()>;
}
