//! How late the kernel may ring: by default it lets a process sleep 50 µs longer than it asked for,
//! so that more of them wake at once. A server sleeps to act at the right moment, so its threads give
//! that leave back, and so do the workers, which inherit what the thread that starts them has.

use std::num::NonZeroU64;

const SLACK_NANOS: NonZeroU64 = NonZeroU64::new(1_000).expect("not zero");

/// For this thread and those that it starts; called before there are others.
pub fn be_punctual() {
    if let Err(error) = rustix::thread::set_current_timer_slack(Some(SLACK_NANOS)) {
        tracing::debug!(%error, "timers keep their slack");
    }
}
