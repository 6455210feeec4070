//! The clock of a model's task: rings once, at the time that was set last.
//!
//! The runtime's timers have ticks of a millisecond, which is as long as an answer takes to turn into
//! the next batch. Under the adaptive policy a timer of the kernel's is used, which is exact to some
//! ten microseconds; where there is none, and on the virtual clock of tests, the runtime's.

use std::os::fd::OwnedFd;
use std::pin::Pin;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep, sleep_until};

pub(super) struct Alarm {
    /// What it is set to; none once it has rung.
    at: Option<Instant>,
    /// Which of the two timers is set.
    exact: bool,
    coarse: Pin<Box<Sleep>>,
    fine: Fine,
}

/// The kernel's timer, opened when it is first needed.
enum Fine {
    Unopened,
    Open(AsyncFd<OwnedFd>),
    Missing,
}

impl Alarm {
    pub(super) fn new() -> Self {
        // The virtual clock knows nothing of the kernel's.
        let fine = if cfg!(test) { Fine::Missing } else { Fine::Unopened };
        Self { at: None, exact: false, coarse: Box::pin(sleep_until(Instant::now())), fine }
    }

    /// Sets it, or takes it back; `exact` asks for more than a tick of a millisecond.
    pub(super) fn set(&mut self, at: Option<Instant>, exact: bool) {
        let Some(time) = at.filter(|_| self.at != at) else {
            self.at = at;
            return;
        };
        self.at = at;
        self.exact = exact && self.fine.set(time);
        if !self.exact {
            self.coarse.as_mut().reset(time);
        }
    }

    /// Waits until it rings and says for when it was set. Nothing is lost if it is not waited for.
    pub(super) async fn rings(&mut self) -> Instant {
        let Some(at) = self.at else { return std::future::pending().await };
        match &self.fine {
            Fine::Open(timer) if self.exact => expired(timer).await,
            Fine::Open(_) | Fine::Unopened | Fine::Missing => self.coarse.as_mut().await,
        }
        self.at = None;
        at
    }
}

impl Fine {
    /// Sets the timer; false if there is none.
    fn set(&mut self, at: Instant) -> bool {
        if matches!(self, Self::Unopened) {
            *self = open().map_or(Self::Missing, Self::Open);
        }
        match self {
            Self::Open(timer) => arm(timer, at),
            Self::Unopened | Self::Missing => false,
        }
    }
}

#[expect(deprecated, reason = "what replaces it is unsafe; a descriptor that is owned stays valid")]
fn open() -> Option<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags).ok()?).ok()
}

fn arm(timer: &AsyncFd<OwnedFd>, at: Instant) -> bool {
    let left = at.saturating_duration_since(Instant::now());
    // Nothing at all would disarm it.
    let nanos = i64::from(left.subsec_nanos()).max(i64::from(left.as_secs() == 0));
    let Ok(seconds) = i64::try_from(left.as_secs()) else { return false };
    let once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let value = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let spec = Itimerspec { it_interval: once, it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &spec).is_ok()
}

/// Waits until the timer has run off. A ring that was meant for an earlier setting is gone from the
/// kernel, and found to be so here.
async fn expired(timer: &AsyncFd<OwnedFd>) {
    loop {
        let Ok(mut ready) = timer.readable().await else { return };
        let read = |timer: &AsyncFd<OwnedFd>| Ok(rustix::io::read(timer, &mut [0; 8])?);
        if ready.try_io(read).is_ok() {
            return;
        }
    }
}
