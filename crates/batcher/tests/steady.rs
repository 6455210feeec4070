//! In steady state a step of the adaptive policy allocates nothing.

use jitney_batcher::*;

const MS: Nanos = 1_000_000;

/// A closed loop of clients with deadlines in a few tenants, as fast as the batcher lets them.
struct Loop {
    batcher: Batcher,
    out: Actions,
    running: Vec<BatchId>,
    now: Nanos,
    round: u32,
    prepare: Option<Nanos>,
}

impl Loop {
    fn new(measure: Measure, prepare: Option<Nanos>) -> Self {
        let policy = Policy::Adaptive(Adaptive {
            objective: Some(50 * MS),
            max_wait: None,
            delivery: 0,
            window: None,
        });
        // With stages also at certain sizes and lengths.
        let values = |list: &[u32]| if prepare.is_some() { list.to_vec() } else { Vec::new() };
        let (sizes, lengths) = (values(&[1, 4, 8, 16]), values(&[32, 64]));
        let config = Config { policy, max_items: 16, measure, sizes, lengths, ..Config::default() };
        let (batcher, out) = (Batcher::new(config), Actions::new());
        let mut it = Self { batcher, out, running: Vec::new(), now: 0, round: 0, prepare };
        it.step(Event::WorkerUp { worker: WorkerId(0), slots: 2 });
        it
    }

    fn step(&mut self, event: Event) {
        self.out.clear();
        self.batcher.step(self.now, event, &mut self.out);
        for action in self.out.iter() {
            if let Action::Dispatch(Dispatch { batch, .. }) = action {
                self.running.push(*batch);
            }
        }
    }

    /// Forty requests come one after another; then every batch that leaves is answered.
    fn round(&mut self) {
        self.round += 1;
        for index in 0..40 {
            self.now += MS / 10;
            let mut request = Request::new(RequestId::new(index, self.round));
            request.origin.peer = index.into();
            request.tenant = index % 3;
            request.cost = 20 + u64::from(index * 7 % 40);
            self.step(Event::Arrive(request));
        }
        for _ in 0..1000 {
            self.now += 3 * MS;
            match self.running.pop() {
                Some(batch) => {
                    self.step(Event::Done { batch, exec: 3 * MS, prepare: self.prepare })
                }
                None => self.step(Event::Timer),
            }
            if self.batcher.waiting() + self.batcher.running() == 0 {
                return;
            }
        }
        panic!("requests are stuck");
    }
}

#[test]
fn a_batcher_in_steady_state_does_not_allocate() {
    let measures = [Measure::Items, Measure::Packed, Measure::Padded];
    let loops = measures.iter().flat_map(|&it| [(it, None), (it, Some(MS))]);
    for (measure, prepare) in loops {
        let mut it = Loop::new(measure, prepare);
        // Some buffers are needed only now and then.
        (0..600).for_each(|_| it.round());
        let counted = allocation_counter::measure(|| (0..200).for_each(|_| it.round()));
        assert_eq!(counted.count_total, 0, "{measure:?}: {counted:?}");
    }
}
