//! A timer that is exact to some ten microseconds, where the runtime's has ticks of a millisecond.
//! It is the kernel's timerfd, which has no slack.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// The timer; one waits at a time.
pub(crate) struct ExactTimer(AsyncFd<OwnedFd>);

impl ExactTimer {
    #[expect(deprecated, reason = "what replaces it is unsafe; an owned descriptor stays valid")]
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?).map(Self)
    }

    /// Waits until a time and gives the time it is then.
    pub(crate) async fn until(&self, at: Instant) -> Instant {
        loop {
            let now = Instant::now();
            let Some(left) = at.checked_duration_since(now).filter(|left| !left.is_zero()) else {
                return now;
            };
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
            let value = Timespec { tv_sec: seconds, tv_nsec: i64::from(left.subsec_nanos()) };
            let spec = Itimerspec { it_interval: none, it_value: value };
            if timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec).is_err() {
                tokio::time::sleep(left).await;
                continue;
            }
            self.expired().await;
        }
    }

    async fn expired(&self) {
        loop {
            let Ok(mut ready) = self.0.readable().await else { return };
            let read = |timer: &AsyncFd<OwnedFd>| Ok(rustix::io::read(timer, &mut [0; 8])?);
            if ready.try_io(read).is_ok() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_rings_at_its_time_and_not_before() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let timer = ExactTimer::new().expect("a timer");
            for wait in [Duration::ZERO, Duration::from_micros(200), Duration::from_millis(3)] {
                let at = Instant::now() + wait;
                assert!(timer.until(at).await >= at);
            }
        });
    }
}
