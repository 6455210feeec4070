//! From flags and a workload file to a world that can be played.

use std::path::Path;

use jitney_sim::arrivals::Arrivals;
use jitney_sim::connections::{ConnectionUse, Pools, ReuseOrder, WhenFull};
use jitney_sim::curve::WrittenCurve;
use jitney_sim::demand::{Class, Demand};
use jitney_sim::noise::Noise;
use jitney_sim::pipeline::Stages;
use jitney_sim::trace::Trace;
use jitney_sim::world::{Clients, Load, ThinkSpread, World};

use super::curve_file::{self, read};
use crate::failure::Failure;
use crate::flag_values;
use crate::flags::study::Workload;
use crate::units::Millis;

/// Beyond these a run would take hours, which is hardly intended.
const REQUESTS_MAX: usize = 10_000_000;
const WORKERS_MAX: usize = 1024;
/// Beyond this a batcher's tables are no use, and a curve file is a mistake.
const BATCH_MAX: usize = 4096;
/// Batches that a worker which prepares may hold, unless told otherwise, and the most.
const SLOTS: usize = 3;
const SLOTS_MAX: usize = 8;
/// The most that stages can slow each other down: as if they took turns, and a bad switch.
const CONTENTION_MAX: f64 = 4.0;
/// More pools, or connections in one, than a machine has ports.
const POOLS_MAX: usize = 65_536;

/// A world and its load, ready to be played.
#[derive(Debug)]
pub struct Study {
    /// Workers and their speed.
    pub world: World,
    /// The kind of load.
    pub load: StudyLoad,
    /// Over which connections requests come.
    pub connections: ConnectionUse,
    /// The deadlines and tenants.
    pub classes: Vec<Class>,
    /// Requests to play.
    pub count: usize,
    /// The seed of the arrivals.
    pub seed: u64,
}

/// The kind of load.
#[derive(Debug)]
pub enum StudyLoad {
    /// Requests that come whatever happens, at each of these rates.
    Open {
        /// When.
        arrivals: Arrivals,
        /// Per second.
        rates: Vec<f64>,
    },
    /// So many clients, each waiting for its answer.
    Closed {
        /// How many.
        clients: Vec<usize>,
        /// Mean time to think, in nanoseconds.
        think: u64,
        /// How it is spread.
        spread: ThinkSpread,
    },
}

impl Study {
    /// Checks the flags and combines them with the file.
    pub fn new(flags: Workload, file: Option<&Path>) -> Result<Self, Failure> {
        let flags = match file {
            Some(path) => flags.or(parse(path)?),
            None => flags,
        };
        let (count, seed) = (
            bounded("--requests", flags.requests.unwrap_or(20_000), REQUESTS_MAX)?,
            flags.seed.unwrap_or(42),
        );
        let world = flags.world(seed)?;
        let (load, count) = flags.load(&world, count)?;
        let connections = flags.connections(seed)?;
        Ok(Self { world, load, connections, classes: flags.classes()?, count, seed })
    }

    /// The load at one rate.
    pub fn open(&self, arrivals: &Arrivals, rate: f64) -> Load {
        let demand = Demand { arrivals: arrivals.clone(), classes: self.classes.clone() };
        demand.load(rate, self.count, self.seed).over(self.connections)
    }

    /// The load of so many clients.
    pub fn closed(&self, count: usize, think: u64, spread: ThinkSpread) -> Load {
        let World { curve, workers, .. } = &self.world;
        let share = count.div_ceil(*workers).min(curve.max());
        let rate = (count as f64 * 1e9 / curve.time(share) as f64).min(curve.capacity(*workers));
        let until = (self.count as f64 / rate * 1e9) as u64;
        let deadline = (self.classes[0].deadline * 1e6) as u64;
        let (turn, seed) = (50_000, self.seed);
        let clients = Clients { count, turn, think, spread, deadline, until, seed };
        Load::closed(clients).over(self.connections)
    }
}

fn parse(path: &Path) -> Result<Workload, Failure> {
    serde_saphyr::from_str(&read(path)?).map_err(|error| {
        Failure::usage(format!("{} is not a workload: {error}", path.display())).hint(
            "its keys are the flags: curve, workers, rate, deadline …; see jitney simulate --help",
        )
    })
}

/// A count between 1 and a limit.
pub fn bounded(name: &str, value: usize, most: usize) -> Result<usize, Failure> {
    if (1..=most).contains(&value) {
        return Ok(value);
    }
    Err(Failure::usage(format!("{name} must be between 1 and {most}, not {value}")))
}

/// A share, such as the jitter.
pub fn share(name: &str, value: f64) -> Result<f64, Failure> {
    if (0.0..=1.0).contains(&value) {
        return Ok(value);
    }
    Err(Failure::usage(format!("{name} must be between 0 and 1, not {value}")))
}

/// Requests per second.
pub fn positive(name: &str, value: f64) -> Result<f64, Failure> {
    if value > 0.0 && value <= 1e9 {
        return Ok(value);
    }
    Err(Failure::usage(format!("{name} must be above 0, not {value}")))
}

/// Arrivals as recorded in a file.
pub fn trace(path: &Path) -> Result<Trace, Failure> {
    let failed = |error| Failure::usage(format!("{} is not a recording: {error}", path.display()));
    Trace::parse(&read(path)?).map_err(failed)
}

/// The largest batch, by default the largest that was measured, else 64.
pub fn max_batch(given: Option<usize>, curve: &WrittenCurve) -> Result<usize, Failure> {
    bounded("--max-batch", given.or(curve.largest()).unwrap_or(64), BATCH_MAX)
}

/// The sizes at which the model runs.
pub fn sizes(sizes: &[u32]) -> Result<Vec<u32>, Failure> {
    for &size in sizes {
        bounded("--sizes", size as usize, BATCH_MAX)?;
    }
    Ok(sizes.to_vec())
}

/// How workers prepare batches while they run others, if they do.
pub fn stages(
    prepare: Option<&str>,
    slots: Option<usize>,
    contention: Option<f64>,
    max_batch: usize,
) -> Result<Option<Stages>, Failure> {
    let Some(prepare) = prepare else {
        return match slots.is_some() || contention.is_some() {
            true => Err(Failure::usage("--slots and --contention need --prepare CURVE")),
            false => Ok(None),
        };
    };
    let contention = contention.unwrap_or(1.0);
    if !(1.0..=CONTENTION_MAX).contains(&contention) {
        let message = format!("must be between 1 and {CONTENTION_MAX}, not {contention}");
        return Err(Failure::usage(format!("--contention {message}")));
    }
    Ok(Some(Stages {
        prepare: curve_file::load(prepare)?.curve(max_batch),
        slots: bounded("--slots", slots.unwrap_or(SLOTS), SLOTS_MAX)?,
        contention,
    }))
}

impl Workload {
    fn or(self, other: Self) -> Self {
        fn list<T>(one: Vec<T>, other: Vec<T>) -> Vec<T> {
            if one.is_empty() { other } else { one }
        }
        // A flag for one way of load silences the file's other way.
        let other = match (!self.clients.is_empty(), !self.rate.is_empty() || self.trace.is_some())
        {
            (true, _) => Self { rate: vec![], trace: None, ..other },
            (_, true) => Self { clients: vec![], ..other },
            _ => other,
        };
        Self {
            curve: self.curve.or(other.curve),
            max_batch: self.max_batch.or(other.max_batch),
            sizes: list(self.sizes, other.sizes),
            prepare: self.prepare.or(other.prepare),
            slots: self.slots.or(other.slots),
            contention: self.contention.or(other.contention),
            workers: self.workers.or(other.workers),
            rate: list(self.rate, other.rate),
            arrivals: self.arrivals.or(other.arrivals),
            trace: self.trace.or(other.trace),
            clients: list(self.clients, other.clients),
            think: self.think.or(other.think),
            think_kind: self.think_kind.or(other.think_kind),
            pool: self.pool.or(other.pool),
            pool_order: self.pool_order.or(other.pool_order),
            pools: self.pools.or(other.pools),
            pool_waits: self.pool_waits || other.pool_waits,
            deadline: list(self.deadline, other.deadline),
            tenants: list(self.tenants, other.tenants),
            jitter: self.jitter.or(other.jitter),
            outliers: self.outliers.or(other.outliers),
            slow_down: self.slow_down.or(other.slow_down),
            lose_worker: self.lose_worker.or(other.lose_worker),
            requests: self.requests.or(other.requests),
            seed: self.seed.or(other.seed),
        }
    }

    fn world(&self, seed: u64) -> Result<World, Failure> {
        let curve = curve_file::load(self.curve.as_deref().unwrap_or("5+0.2b"))?;
        let workers = bounded("--workers", self.workers.unwrap_or(1), WORKERS_MAX)?;
        let noise = Noise {
            jitter: share("--jitter", self.jitter.unwrap_or(0.0))?,
            outliers: share("--outliers", self.outliers.unwrap_or(0.0))?,
            outlier: 2.0,
            slow: self.slow_down.as_deref().map(flag_values::slow_down).transpose()?,
            cold: None,
        };
        let losses = self.lose_worker.as_deref().map(flag_values::loss).transpose()?;
        if workers == 1 && losses.is_some_and(|loss| loss.back == u64::MAX) {
            let message = "the only worker cannot be lost for ever: no request would be answered";
            return Err(Failure::usage(message)
                .hint("add when it is back, as in 5s..8s, or use --workers 2"));
        }
        let most = max_batch(self.max_batch, &curve)?;
        let stages = stages(self.prepare.as_deref(), self.slots, self.contention, most)?;
        let world = World::new(curve.curve(most), workers).with_noise(noise);
        let world = world.at_sizes(sizes(&self.sizes)?);
        Ok(World { stages, losses: losses.into_iter().collect(), seed, ..world })
    }

    fn load(&self, world: &World, count: usize) -> Result<(StudyLoad, usize), Failure> {
        if !self.clients.is_empty() {
            for &clients in &self.clients {
                bounded("--clients", clients, 100_000)?;
            }
            let think = self.think.map_or(200_000, |think| think.0.as_nanos() as u64);
            let spread = flag_values::think(self.think_kind.as_deref().unwrap_or("exponential"))?;
            return Ok((StudyLoad::Closed { clients: self.clients.clone(), think, spread }, count));
        }
        let mut rates = self.rate.clone();
        for &rate in &rates {
            positive("--rate", rate)?;
        }
        let Some(path) = &self.trace else {
            let arrivals = flag_values::arrivals(self.arrivals.as_deref().unwrap_or("poisson"))?;
            if rates.is_empty() {
                rates = sweep(world.curve.capacity(world.workers));
            }
            return Ok((StudyLoad::Open { arrivals, rates }, count));
        };
        let trace = trace(path)?;
        if rates.is_empty() {
            rates.push(trace.rate());
        }
        let count = self.requests.map_or(trace.times.len(), |_| count);
        Ok((StudyLoad::Open { arrivals: Arrivals::Recorded(trace.times), rates }, count))
    }

    /// Over which connections requests come; clients come through a proxy then.
    fn connections(&self, seed: u64) -> Result<ConnectionUse, Failure> {
        let order = self.pool_order.as_deref().map(flag_values::pool_order).transpose()?;
        let shared = order == Some(ReuseOrder::Shared);
        let Some(size) = self.pool.or(shared.then_some(1)) else {
            if order.is_some() || self.pools.is_some() || self.pool_waits {
                let message = "--pool-order, --pools and --pool-waits need --pool SIZE";
                return Err(
                    Failure::usage(message).hint("urllib3 keeps 1 by default, Go 2, aiohttp 100")
                );
            }
            return Ok(ConnectionUse::Own);
        };
        let pools = Pools {
            count: bounded("--pools", self.pools.unwrap_or(1), POOLS_MAX)?,
            size: bounded("--pool", size, POOLS_MAX)?,
            order: order.unwrap_or(ReuseOrder::LastFreed),
            when_full: if self.pool_waits { WhenFull::Waits } else { WhenFull::Opens },
            seed,
        };
        Ok(ConnectionUse::Proxied(pools))
    }

    fn classes(&self) -> Result<Vec<Class>, Failure> {
        let fifty = [Millis(std::time::Duration::from_millis(50))];
        let deadlines = if self.deadline.is_empty() { &fifty[..] } else { &self.deadline };
        let tenants = if self.tenants.is_empty() { &[1.0][..] } else { &self.tenants };
        let mut classes = Vec::new();
        for (tenant, &weight) in tenants.iter().enumerate() {
            positive("--tenants", weight)?;
            for deadline in deadlines {
                let deadline = positive("--deadline", deadline.0.as_secs_f64() * 1e3)?;
                classes.push(Class { share: weight, deadline, tenant: tenant as u32 });
            }
        }
        Ok(classes)
    }
}

/// From little to three times what can be carried.
fn sweep(capacity: f64) -> Vec<f64> {
    let factors = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0];
    factors.iter().map(|factor| (factor * capacity).round().max(1.0)).collect()
}
