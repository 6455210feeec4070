//! A process and everything it started that has not left its group. Dropping it kills them all.

use std::io;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

/// A group whose leader is a child of this process.
pub(super) struct ProcessGroup {
    child: Child,
    leader: Pid,
    /// Tells that a child of this process has ended, whichever.
    children: SignalStream,
    /// The leader's id may be somebody else's from now on.
    reaped: bool,
}

impl ProcessGroup {
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        // Before the process, so that its end is not missed.
        let children = signal(SignalKind::child())?;
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.ok_or_else(|| io::Error::other("a process without an id"))?;
        Ok(Self { child, leader, children, reaped: false })
    }

    /// The leader's id, which is the group's.
    pub(super) fn leader(&self) -> Pid {
        self.leader
    }

    /// Its output, once.
    pub(super) fn pipes(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// Waits until the leader has ended, without reaping it. Cancel-safe.
    pub(super) async fn leader_ended(&mut self) {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        // An error: somebody else has reaped it.
        while let Ok(None) = waitid(WaitId::Pid(self.leader), look) {
            if self.children.recv().await.is_none() {
                return;
            }
        }
    }

    /// Kills all that is left of the group.
    pub(super) fn kill(&self) {
        if !self.reaped {
            // Fails when none of it is left, which is what we want.
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
    }

    /// How the leader ended; waits until it has.
    pub(super) async fn reap(&mut self) -> Option<std::process::ExitStatus> {
        let status = self.child.wait().await.ok();
        self.reaped = true;
        status
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}
