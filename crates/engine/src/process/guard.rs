//! The guard: a program beside the server that ends the server's processes when the server itself could
//! not, because it was killed.
//!
//! It is told of every group over a pipe that only the server holds. The pipe's end is the server's
//! end, however that came about; then the guard kills the groups that are left, and exits. The kernel's
//! parent-death signal alone would end the leaders and leave their children.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};

/// The command of the server's program that runs [`guard_groups`].
const COMMAND: &str = "guard-groups";

const WATCH: u8 = b'+';
const FORGET: u8 = b'-';
/// What is to be done, and the group's id.
const MESSAGE_LEN: usize = 5;

/// Reads from `input` which groups there are, and kills those that are left at its end.
pub fn guard_groups(mut input: impl Read) {
    let mut groups = BTreeSet::new();
    let mut message = [0; MESSAGE_LEN];
    while input.read_exact(&mut message).is_ok() {
        let [what, id @ ..] = message;
        let id = i32::from_le_bytes(id);
        if what == WATCH {
            groups.insert(id);
        } else {
            groups.remove(&id);
        }
    }
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        // Fails when none of it is left, which is what we want.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The server's end of the pipe.
pub(super) struct GroupGuard(Option<(Child, File)>);

impl GroupGuard {
    /// Starts the guard. Without one the server works all the same.
    pub(super) fn start(program: Option<&Path>) -> Self {
        let started = program.map(start).transpose();
        if let Err(error) = &started {
            tracing::warn!(%error, "no guard: children of workers outlive a server that is killed");
        }
        Self(started.ok().flatten())
    }

    /// From now on this group ends with the server.
    pub(super) fn watch(&mut self, group: Pid) {
        self.tell(WATCH, group);
    }

    /// The group has ended; its id may soon be somebody else's.
    pub(super) fn forget(&mut self, group: Pid) {
        self.tell(FORGET, group);
    }

    fn tell(&mut self, what: u8, group: Pid) {
        let Some((_, pipe)) = &mut self.0 else { return };
        let mut message = [what; MESSAGE_LEN];
        message[1..].copy_from_slice(&group.as_raw_nonzero().get().to_le_bytes());
        // A message is written whole or not at all: it is far smaller than a pipe.
        if let Err(error) = pipe.write_all(&message) {
            tracing::warn!(%error, "the guard is gone: children of workers outlive a server that is killed");
            self.end();
        }
    }

    /// Ends the guard.
    pub(super) fn end(&mut self) {
        if let Some((mut child, _)) = self.0.take() {
            // It holds nothing and waits for nothing; if it has ended, the better.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn start(program: &Path) -> io::Result<(Child, File)> {
    // It prints nothing, and `/dev/null` may be missing.
    let (_, output) = io::pipe()?;
    let mut child = Command::new(program)
        .arg(COMMAND)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(output.try_clone()?)
        .stderr(output)
        // Out of reach of a terminal's Ctrl-C.
        .process_group(0)
        .spawn()?;
    let pipe = child.stdin.take().ok_or_else(|| io::Error::other("no pipe"))?;
    let pipe = File::from(OwnedFd::from(pipe));
    ioctl_fionbio(&pipe, true)?;
    Ok((child, pipe))
}
