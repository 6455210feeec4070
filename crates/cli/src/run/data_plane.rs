//! The threads that serve connections and run the models' tasks. Each has its own runtime, so that a
//! request, its batch and its answer stay on one thread.
//!
//! A thread outlives its listener: while the server drains, the engine answers admitted requests on
//! these runtimes. Only [`DataPlane::end`] stops them.

use std::future::Future;
use std::io;
use std::num::NonZeroU64;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use jitney_server::Server;
use tokio::runtime::Handle;
use tokio::sync::watch;

const TIMER_SLACK_NANOS: NonZeroU64 = NonZeroU64::new(1_000).expect("not zero");

/// Makes timers of this thread, of the threads it starts and of the workers more precise: by default
/// the kernel may wake a process 50 µs late. Called before other threads exist.
pub fn reduce_timer_slack() {
    if let Err(error) = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOS)) {
        tracing::debug!(%error, "the timer slack was not reduced");
    }
}

/// The stage of the server, which only moves forward.
#[derive(Clone)]
enum ServerStage {
    Starting,
    Open(Arc<Server>),
    Closing,
    Ended,
}

/// The threads and the stage of the server.
pub struct DataPlane {
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
    stage: watch::Sender<ServerStage>,
}

impl DataPlane {
    /// Starts the threads; they wait for [`Self::open`].
    pub fn start(count: usize) -> io::Result<Self> {
        let (stage, _) = watch::channel(ServerStage::Starting);
        let mut plane = Self { handles: Vec::new(), threads: Vec::new(), stage };
        for index in 0..count {
            plane.add(index)?;
        }
        Ok(plane)
    }

    fn add(&mut self, index: usize) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stage, (started, ready)) = (self.stage.subscribe(), mpsc::sync_channel(1));
        let thread =
            std::thread::Builder::new().name(format!("data-{index}")).spawn(move || {
                let _ = started.send(runtime.handle().clone());
                runtime.block_on(serve(index, stage));
                // Tasks that still block are those of a drain that timed out.
                runtime.shutdown_background();
            })?;
        self.handles.push(ready.recv().map_err(|_| io::Error::other("a thread did not start"))?);
        self.threads.push(thread);
        Ok(())
    }

    /// The runtimes, for the engine's tasks.
    pub fn handles(&self) -> Vec<Handle> {
        self.handles.clone()
    }

    /// Makes every thread serve its listener.
    pub fn open(&self, server: &Arc<Server>) {
        self.stage.send_replace(ServerStage::Open(Arc::clone(server)));
    }

    /// Ends the listeners; requests in progress go on.
    pub fn close(&self) {
        self.stage.send_replace(ServerStage::Closing);
    }

    /// Resolves when the listeners have to end.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        reached(self.stage.subscribe(), |stage| {
            matches!(stage, ServerStage::Closing | ServerStage::Ended)
        })
    }

    /// Ends the threads.
    pub fn end(self) {
        self.stage.send_replace(ServerStage::Ended);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the data plane panicked");
            }
        }
    }
}

async fn serve(index: usize, mut stage: watch::Receiver<ServerStage>) {
    let open = stage.wait_for(|stage| !matches!(stage, ServerStage::Starting)).await;
    let server = match open.as_deref() {
        Ok(ServerStage::Open(server)) => Some(Arc::clone(server)),
        _ => None,
    };
    drop(open);
    if let Some(server) = server {
        let closing = reached(stage.clone(), |stage| {
            matches!(stage, ServerStage::Closing | ServerStage::Ended)
        });
        if let Err(error) = server.run_data(index, closing).await {
            tracing::error!(%error, "a listener ended");
        }
    }
    reached(stage, |stage| matches!(stage, ServerStage::Ended)).await;
}

/// Resolves at a stage, or when the sender is gone.
async fn reached(mut stage: watch::Receiver<ServerStage>, far_enough: fn(&ServerStage) -> bool) {
    let _ = stage.wait_for(far_enough).await;
}
