//! Kinds of requests: their deadlines and tenants.

use jitney_batcher::Nanos;

use crate::arrivals::Arrivals;
use crate::curve::ms;
use crate::dice::Dice;
use crate::job::Job;
use crate::world::Load;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Its share of all requests; shares need not sum to 1.
    pub share: f64,
    /// Time to the answer in milliseconds; infinite is no deadline.
    pub deadline: f64,
    /// The tenant.
    pub tenant: u32,
}

/// Open arrivals of one or several kinds of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// When they come.
    pub arrivals: Arrivals,
    /// What they want.
    pub classes: Vec<Class>,
}

impl Demand {
    /// Poisson arrivals that all have the same deadline, in milliseconds.
    #[must_use]
    pub fn poisson(deadline: f64) -> Self {
        Self::new(Arrivals::Poisson, deadline)
    }

    /// Arrivals that all have the same deadline, in milliseconds.
    #[must_use]
    pub fn new(arrivals: Arrivals, deadline: f64) -> Self {
        Self { arrivals, classes: vec![Class { share: 1.0, deadline, tenant: 0 }] }
    }

    /// The first `count` requests at `rate` per second.
    #[must_use]
    pub fn jobs(&self, rate: f64, count: usize, seed: u64) -> Vec<Job> {
        let mut dice = Dice::new(seed ^ 0xd1ce);
        let times = self.arrivals.times(rate, count, seed);
        let job = |(client, at): (usize, Nanos)| {
            let class = self.draw(&mut dice);
            let deadline = at.saturating_add(allowance(class.deadline));
            Job { at, deadline, tenant: class.tenant, client: client as u64 }
        };
        times.into_iter().enumerate().map(job).collect()
    }

    /// The same as a load.
    #[must_use]
    pub fn load(&self, rate: f64, count: usize, seed: u64) -> Load {
        Load::open(self.jobs(rate, count, seed))
    }

    fn draw(&self, dice: &mut Dice) -> Class {
        if let [class] = self.classes[..] {
            return class;
        }
        let mut left = dice.unit() * self.classes.iter().map(|class| class.share).sum::<f64>();
        let found = self.classes.iter().find(|class| {
            left -= class.share;
            left < 0.0
        });
        *found.unwrap_or(&self.classes[self.classes.len() - 1])
    }
}

fn allowance(deadline: f64) -> Nanos {
    if deadline.is_finite() { ms(deadline) } else { Nanos::MAX }
}
