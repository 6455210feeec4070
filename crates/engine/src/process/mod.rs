//! Processes that run models: started, read and ended on one thread, each with all that it started.
//!
//! A process has a group of its own. When its leader ends, or when its [`WorkerProcess`] is dropped,
//! the whole group is killed, and only then is the leader reaped: until that nobody else can have its
//! id. A child that has left the group (`setsid`) is out of reach.
//!
//! It is one thread for two reasons. The kernel's parent-death signal is about the thread that started
//! a process, so that must be one that lives as long as the server; and a process that prints much must
//! neither wait at a full pipe nor take time from the data plane. What is told of a process is what any
//! program does: nothing here knows Python, models or frames.

mod fork_server;
mod group;
mod guard;
mod memory;
mod memory_group;
mod process_cpus;

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Command;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::{Instant, interval_at, timeout};

use self::fork_server::Pipe;
pub(crate) use self::fork_server::{ForkError, ForkOrder, ForkServer};
use self::group::ProcessGroup;
use self::guard::GroupGuard;
pub use self::guard::guard_groups;
use self::memory::OomCounter;
pub(crate) use self::memory::{MeasuredMemory, ProcessEnd, measured_memory};
use self::memory_group::{MemoryGroup, MemoryGroups};
pub(crate) use self::process_cpus::ProcessCpus;

/// How long what a dead process has printed is still read, where a child that left its group holds the
/// pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// An input that is at its end. Unlike `Stdio::null` it needs no `/dev/null`, which a root file system
/// with nothing but this program lacks.
pub(crate) fn no_input() -> io::Result<Stdio> {
    let (input, _) = io::pipe()?;
    Ok(input.into())
}

/// The thread that starts and reads all processes. They end with it.
pub(crate) struct ProcessThread {
    runtime: Handle,
    /// Dropping it ends the thread.
    alive: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
    guard: Arc<Mutex<GroupGuard>>,
    kills: Arc<Mutex<OomCounter>>,
    /// None where this process may make none.
    memory_groups: Option<MemoryGroups>,
}

impl ProcessThread {
    /// Starts the thread, and beside it `guard`, a program that ends the processes if this one is
    /// killed (see [`guard_groups`]).
    pub(crate) fn start(guard: Option<&Path>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, ended) = oneshot::channel::<Infallible>();
        let thread = std::thread::Builder::new().name("processes".to_owned()).spawn(move || {
            // An error: the sender was dropped, and nothing is ever sent.
            drop(runtime.block_on(ended));
        })?;
        let guard = Arc::new(Mutex::new(GroupGuard::start(guard)));
        let kills = Arc::new(Mutex::new(OomCounter::find()));
        let (runtime, alive, thread) = (handle, Some(alive), Some(thread));
        Ok(Self { runtime, alive, thread, guard, kills, memory_groups: MemoryGroups::find() })
    }

    /// Starts a process. Dropping the future, or the process, ends it.
    pub(crate) fn spawn<S: OutputSink>(
        &self,
        command: Command,
        stdout: S,
        stderr: S,
    ) -> impl Future<Output = io::Result<WorkerProcess>> + Send + use<S> {
        let (started, process) = oneshot::channel();
        let watch = self.watch();
        self.runtime.spawn(async move {
            match ProcessGroup::spawn(command) {
                Err(error) => drop(started.send(Err(error))),
                Ok(mut group) => {
                    let pipes = group.pipes();
                    let (running, process) = RunningProcess::new(group, pipes, watch);
                    // One that is not wanted any more is dropped here, which ends it.
                    drop(started.send(Ok(process)));
                    running.run(stdout, stderr).await;
                }
            }
        });
        async { process.await.unwrap_or_else(|_| Err(io::Error::other("the server is ending"))) }
    }

    /// Starts a process that forks others.
    pub(crate) async fn start_fork_server<S: OutputSink>(
        &self,
        mut command: Command,
        [stdout, stderr]: [S; 2],
    ) -> io::Result<(Arc<ForkServer>, WorkerProcess)> {
        let (ours, theirs) = UnixStream::pair()?;
        command.stdin(OwnedFd::from(theirs));
        let process = self.spawn(command, stdout, stderr).await?;
        ours.set_nonblocking(true)?;
        let _there = self.runtime.enter();
        let channel = tokio::net::UnixStream::from_std(ours)?;
        Ok((Arc::new(ForkServer::new(channel)), process))
    }

    /// Forks a process. Dropping the process ends it. With an error both sinks come back; none: the server is ending.
    pub(crate) fn fork<S: OutputSink>(
        &self,
        server: Arc<ForkServer>,
        order: ForkOrder,
        [stdout, stderr]: [S; 2],
    ) -> impl Future<Output = Result<WorkerProcess, Option<(ForkError, [S; 2])>>> + Send + use<S>
    {
        let (started, process) = oneshot::channel();
        let watch = self.watch();
        let task = self.runtime.spawn(async move {
            let forked = server
                .fork(&order)
                .await
                .and_then(|(id, pipes)| Ok((ProcessGroup::forked(&server, id)?, pipes)));
            let (group, pipes) = match forked {
                Ok(forked) => forked,
                Err(error) => return Some((error, [stdout, stderr])),
            };
            let (running, process) = RunningProcess::new(group, pipes, watch);
            drop(started.send(process));
            running.run(stdout, stderr).await;
            None
        });
        async {
            match process.await {
                Ok(process) => Ok(process),
                Err(_) => Err(task.await.ok().flatten()),
            }
        }
    }

    fn watch(&self) -> (Arc<Mutex<GroupGuard>>, Arc<Mutex<OomCounter>>) {
        (Arc::clone(&self.guard), Arc::clone(&self.kills))
    }
}

impl ProcessThread {
    /// From now on this process may use so many bytes. What it allocates counts, not what it only reserves. In a
    /// group of its own it is ended beyond that; elsewhere it gets no more, and Python raises MemoryError.
    pub(crate) fn limit_memory(&self, process: &WorkerProcess, bytes: u64) {
        let Some(id) = process.id.and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
        match self.memory_groups.as_ref().and_then(|groups| groups.limit(id, bytes)) {
            // It is set once: a process has one limit.
            Some(group) => drop(process.memory.group.set(group)),
            None => process.limit(Resource::Data, bytes),
        }
    }

    /// The thread's runtime, for whoever watches processes of other machines.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for ProcessThread {
    fn drop(&mut self) {
        self.alive.take();
        if let Some(thread) =
            self.thread.take().filter(|it| it.thread().id() != std::thread::current().id())
        {
            // Short: it waits for nothing but its own tasks, which are dropped with their processes.
            drop(thread.join());
        }
        lock(&self.guard).end();
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a process has of the machine's memory.
#[derive(Debug, Default)]
struct ProcessMemory {
    /// The bytes that it held when it was last looked at; 0 before that.
    held: AtomicU64,
    /// What limits it, where that is a group.
    group: OnceLock<MemoryGroup>,
}

/// A process as its owner sees it. Dropping it kills the process and its group.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    /// None where it runs on another machine.
    id: Option<u32>,
    /// Dropping it is the signal.
    wanted: Option<oneshot::Sender<Infallible>>,
    ended: oneshot::Receiver<ProcessEnd>,
    /// How it ended, once that is known.
    end: Option<Option<ProcessEnd>>,
    memory: Arc<ProcessMemory>,
    /// What keeps it to processors.
    pub(crate) cpus: Arc<ProcessCpus>,
    /// Resolves when nothing more is read from its pipes.
    drained: oneshot::Receiver<Infallible>,
}

impl WorkerProcess {
    /// A process that somebody else started, and what its owner and whoever watches it tell each other.
    pub(crate) fn elsewhere() -> (Self, WatchedElsewhere) {
        let ((wanted, unwanted), (tell_ended, ended)) = (oneshot::channel(), oneshot::channel());
        let (reading, drained) = oneshot::channel();
        let (memory, cpus, wanted) = (Arc::default(), Arc::default(), Some(wanted));
        let process = Self { id: None, wanted, ended, end: None, memory, cpus, drained };
        (process, WatchedElsewhere { unwanted, ended: tell_ended, _drained: reading })
    }

    /// Its id on this machine, which is its group's as well.
    pub(crate) fn id(&self) -> Option<u32> {
        self.id
    }

    /// The bytes that it held when it was last looked at; 0 where nobody looks.
    pub(crate) fn memory(&self) -> u64 {
        self.memory.held.load(Ordering::Relaxed)
    }

    /// Limits what it may use of a resource; nothing where it runs on another machine.
    pub(crate) fn limit(&self, resource: Resource, most: u64) {
        let Some(id) = self.id.and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
        let limit = Rlimit { current: Some(most), ..getrlimit(resource) };
        if let Err(error) = prlimit(Some(id), resource, limit) {
            let of = if resource == Resource::Data { "memory" } else { "open files" };
            tracing::warn!(%error, of, "a worker has the server's limit");
        }
    }

    /// Waits until it has ended, and its group with it; none if that is not known. Cancel-safe.
    pub(crate) async fn wait(&mut self) -> Option<ProcessEnd> {
        match self.end {
            Some(end) => end,
            None => *self.end.insert((&mut self.ended).await.ok()),
        }
    }

    /// Waits until all that it has printed was read, or for a while after its end. Cancel-safe.
    pub(crate) async fn drained(&mut self) {
        // An error is what is waited for, and all that ever comes.
        drop((&mut self.drained).await);
    }

    /// Kills it and its group; does not wait.
    pub(crate) fn kill(&mut self) {
        self.wanted.take();
    }
}

/// A process on another machine, as its watcher here sees it. Dropping it means that nothing more is heard of it.
pub(crate) struct WatchedElsewhere {
    /// Resolves when its owner does not want it any more.
    pub(crate) unwanted: oneshot::Receiver<Infallible>,
    /// Where its end is told.
    pub(crate) ended: oneshot::Sender<ProcessEnd>,
    _drained: oneshot::Sender<Infallible>,
}

/// A process as its thread sees it.
struct RunningProcess {
    group: ProcessGroup,
    pipes: [Option<Pipe>; 2],
    guard: Arc<Mutex<GroupGuard>>,
    kills: Arc<Mutex<OomCounter>>,
    wanted: oneshot::Receiver<Infallible>,
    ended: oneshot::Sender<ProcessEnd>,
    memory: Arc<ProcessMemory>,
    cpus: Arc<ProcessCpus>,
    _drained: oneshot::Sender<Infallible>,
}

impl RunningProcess {
    fn new(
        group: ProcessGroup,
        pipes: [Option<Pipe>; 2],
        (guard, kills): (Arc<Mutex<GroupGuard>>, Arc<Mutex<OomCounter>>),
    ) -> (Self, WorkerProcess) {
        lock(&guard).watch(group.id());
        let ((wanted, unwanted), (tell_ended, ended)) = (oneshot::channel(), oneshot::channel());
        let (reading, drained) = oneshot::channel();
        let id = group.id().as_raw_nonzero().get().unsigned_abs();
        let memory = Arc::<ProcessMemory>::default();
        let cpus = Arc::new(ProcessCpus::new(group.id()));
        let process = WorkerProcess {
            id: Some(id),
            wanted: Some(wanted),
            ended,
            end: None,
            memory: Arc::clone(&memory),
            cpus: Arc::clone(&cpus),
            drained,
        };
        let (wanted, ended, _drained) = (unwanted, tell_ended, reading);
        (Self { group, pipes, guard, kills, wanted, ended, memory, cpus, _drained }, process)
    }

    async fn run(self, stdout: impl OutputSink, stderr: impl OutputSink) {
        let Self { mut group, pipes, guard, kills, mut wanted, ended, memory, cpus, _drained } =
            self;
        let [output, errors] = pipes;
        let reading = async { tokio::join!(read_pipe(output, stdout), read_pipe(errors, stderr)) };
        let mut reading = std::pin::pin!(reading);
        let (mut is_wanted, mut is_read) = (true, false);
        let first = Instant::now() + memory::LOOK_EVERY;
        let mut looks = interval_at(first, memory::LOOK_EVERY);
        loop {
            tokio::select! {
                () = group.leader_ended() => break,
                _ = &mut wanted, if is_wanted => {
                    group.kill();
                    is_wanted = false;
                }
                _ = &mut reading, if !is_read => is_read = true,
                now = looks.tick() => {
                    lock(&kills).age(now);
                    if let Some(bytes) = memory::resident(group.id()) {
                        memory.held.store(bytes, Ordering::Relaxed);
                    }
                }
            }
        }
        // The leader is not reaped yet, so its id is still its own.
        group.kill();
        lock(&guard).forget(group.id());
        cpus.end();
        if let Some(status) = group.reap().await {
            // Nobody may wait for it.
            let held = Some(memory.held.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0);
            let beyond_limit = memory.group.get().is_some_and(MemoryGroup::ran_out);
            let _ = ended.send(ProcessEnd { beyond_limit, ..lock(&kills).judge(status, held) });
        }
        if !is_read {
            drop(timeout(DRAIN_TIMEOUT, reading).await);
        }
    }
}

/// Bytes of a line that a sink is given at once.
pub(crate) const OUTPUT_PIECE_MAX: u64 = 8 * 1024;

/// Takes what a process prints on one of its streams.
pub(crate) trait OutputSink: Send + 'static {
    /// The next line, or a piece of one; `begins`: whether a line begins here.
    fn take(&mut self, piece: &[u8], begins: bool);
}

/// Reads a pipe to its end.
async fn read_pipe(pipe: Option<impl AsyncRead + Unpin>, sink: impl OutputSink) {
    if let Some(pipe) = pipe {
        read_pieces(BufReader::new(pipe), sink).await;
    }
}

pub(crate) async fn read_pieces(mut pipe: impl AsyncBufRead + Unpin, mut sink: impl OutputSink) {
    let (mut piece, mut begins) = (Vec::new(), true);
    loop {
        piece.clear();
        match (&mut pipe).take(OUTPUT_PIECE_MAX).read_until(b'\n', &mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        sink.take(&piece, begins);
        begins = piece.ends_with(b"\n");
    }
}

#[cfg(test)]
mod tests;
