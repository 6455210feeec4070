//! Which requests are traced: a client that says so decides, and otherwise a share of them.

use super::ids::TraceId;

/// The share of requests without a decision of their own that are traced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleRatio {
    /// Ids whose lower 63 bits are below it are traced, as OpenTelemetry's samplers do it: servers with the
    /// same ratio choose the same traces.
    below: u64,
}

impl SampleRatio {
    /// From 0 (none) to 1 (all); what lies outside counts as the nearer of the two.
    pub fn new(ratio: f64) -> Self {
        let whole = (1_u64 << 63) as f64;
        Self { below: (ratio.clamp(0.0, 1.0) * whole) as u64 }
    }

    /// Whether a trace is chosen.
    pub(super) fn takes(self, trace: TraceId) -> bool {
        (trace.0 as u64) >> 1 < self.below
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_none_and_about_a_share() {
        fastrand::seed(7);
        let taken = |ratio| {
            let ratio = SampleRatio::new(ratio);
            (0..20_000).filter(|_| ratio.takes(TraceId::fresh())).count()
        };
        assert_eq!(
            [taken(0.0), taken(1.0), taken(-1.0), taken(f64::INFINITY)],
            [0, 20_000, 0, 20_000]
        );
        let share = taken(0.1);
        assert!((1_800..2_200).contains(&share), "{share}");
    }

    proptest! {
        #[test]
        fn a_larger_share_keeps_what_a_smaller_one_took(
            trace in any::<u128>(), less in 0.0..1.0_f64, more in 0.0..1.0_f64,
        ) {
            let (less, more) = (less.min(more), less.max(more));
            let trace = TraceId(trace);
            prop_assert!(!SampleRatio::new(less).takes(trace) || SampleRatio::new(more).takes(trace));
        }
    }
}
