//! A group of processes: its leader, and all that the leader started and that did not leave the group.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::Arc;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

use super::fork_server::{ForkServer, Pipe};

/// A group that is ended when this is dropped.
pub(super) struct ProcessGroup {
    id: Pid,
    leader: Leader,
    /// The leader's id may be somebody else's from now on.
    reaped: bool,
}

enum Leader {
    /// A child of this process, and what tells that one of them has ended, whichever.
    Child(Child, SignalStream),
    /// A child of a fork server, and a descriptor that can be read when it has ended.
    Forked(Arc<ForkServer>, Receiver),
}

impl ProcessGroup {
    /// Starts the leader.
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        // Before the process, so that its end is not missed.
        let children = signal(SignalKind::child())?;
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let id = id.ok_or_else(|| io::Error::other("a process without an id"))?;
        Ok(Self { id, leader: Leader::Child(child, children), reaped: false })
    }

    /// The group of a process that a fork server made, and that it reaps only when it is asked to.
    pub(super) fn forked(server: &Arc<ForkServer>, id: Pid) -> io::Result<Self> {
        // Nothing is read from the descriptor, so it need not be a pipe.
        let ended = pidfd_open(id, PidfdFlags::NONBLOCK).map_err(io::Error::from);
        let ended = ended.and_then(Receiver::from_owned_fd_unchecked).inspect_err(|_| {
            let _ = kill_process_group(id, Signal::KILL);
        })?;
        Ok(Self { id, leader: Leader::Forked(Arc::clone(server), ended), reaped: false })
    }

    /// The leader's id, which is the group's.
    pub(super) fn id(&self) -> Pid {
        self.id
    }

    /// The output of a child, once.
    pub(super) fn pipes(&mut self) -> [Option<Pipe>; 2] {
        let Leader::Child(child, _) = &mut self.leader else { return [None, None] };
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        [stdout.map(|it| Box::new(it) as Pipe), stderr.map(|it| Box::new(it) as Pipe)]
    }

    /// Waits until the leader has ended, without reaping it. Cancel-safe.
    pub(super) async fn leader_ended(&mut self) {
        match &mut self.leader {
            Leader::Child(_, children) => {
                let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
                // An error: somebody else has reaped it.
                while let Ok(None) = waitid(WaitId::Pid(self.id), look) {
                    if children.recv().await.is_none() {
                        return;
                    }
                }
            }
            // An error: the thread is ending.
            Leader::Forked(_, ended) => drop(ended.readable().await),
        }
    }

    /// Kills all that is left of the group.
    pub(super) fn kill(&self) {
        if !self.reaped {
            // Fails when none of it is left, which is what we want.
            let _ = kill_process_group(self.id, Signal::KILL);
        }
    }

    /// How the leader ended; waits until it has. None where nobody knows.
    pub(super) async fn reap(&mut self) -> Option<ExitStatus> {
        let status = match &mut self.leader {
            Leader::Child(child, _) => child.wait().await.ok(),
            Leader::Forked(server, _) => server.reap(self.id).await.ok().map(ExitStatus::from_raw),
        };
        self.reaped = true;
        status
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
