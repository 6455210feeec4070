//! The threads that serve connections and hold the models' tasks: each has a runtime of its own, so
//! that a request, its batch and its answer need not change threads.
//!
//! A thread outlives its listener: the engine answers what was admitted on these runtimes while it
//! drains, and only [`DataPlane::end`] stops them.

use std::future::Future;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use jitney_server::Server;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// How far the server has come; it only ever moves forward.
#[derive(Clone)]
enum Stage {
    Starting,
    Open(Arc<Server>),
    Closing,
    Ended,
}

/// The threads, and the stage they follow.
pub struct DataPlane {
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<()>>,
    stage: watch::Sender<Stage>,
}

impl DataPlane {
    /// Starts the threads; they wait for their doors.
    pub fn start(count: usize) -> io::Result<Self> {
        let (stage, _) = watch::channel(Stage::Starting);
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
                runtime.block_on(live(index, stage));
                // Whatever is still blocking belongs to a drain that ran out of time.
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

    /// Lets every thread serve its listener.
    pub fn open(&self, doors: &Arc<Server>) {
        self.stage.send_replace(Stage::Open(Arc::clone(doors)));
    }

    /// Ends the listeners; what is under way goes on.
    pub fn close(&self) {
        self.stage.send_replace(Stage::Closing);
    }

    /// Resolves when the listeners are to end.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        reached(self.stage.subscribe(), |stage| matches!(stage, Stage::Closing | Stage::Ended))
    }

    /// Ends the threads.
    pub fn end(self) {
        self.stage.send_replace(Stage::Ended);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the data plane panicked");
            }
        }
    }
}

async fn live(index: usize, mut stage: watch::Receiver<Stage>) {
    let open = stage.wait_for(|stage| !matches!(stage, Stage::Starting)).await;
    let doors = match open.as_deref() {
        Ok(Stage::Open(doors)) => Some(Arc::clone(doors)),
        _ => None,
    };
    drop(open);
    if let Some(doors) = doors {
        let closing =
            reached(stage.clone(), |stage| matches!(stage, Stage::Closing | Stage::Ended));
        if let Err(error) = doors.run_data(index, closing).await {
            tracing::error!(%error, "a listener ended");
        }
    }
    reached(stage, |stage| matches!(stage, Stage::Ended)).await;
}

/// A sender that is gone counts as the end.
async fn reached(mut stage: watch::Receiver<Stage>, far_enough: fn(&Stage) -> bool) {
    let _ = stage.wait_for(far_enough).await;
}
