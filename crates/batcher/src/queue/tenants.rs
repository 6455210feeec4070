//! The shares of the tenants: which goes first when not all requests fit into a batch.
//!
//! Start-time fair queueing: each tenant's clock advances by what it was served, divided by its
//! weight, and the tenant that is furthest behind goes first. A tenant that asks for less than its
//! share is protected: while it is active, batches stay short enough to be in time for it. Tenants
//! are kept in a fixed table; two that share a slot share a turn.

use super::sorted::{SortedQueue, WaitingRequest};
use crate::config::Config;
use crate::request::{NEVER, Nanos};

const SLOTS: usize = 64;
const NIL: u32 = u32::MAX;
/// Positions of a queue that are looked at.
const SCAN: usize = 1024;
/// The time given to requests without a deadline, to weigh a tenant's past by.
const GIVEN: f64 = 100e6;
/// What was served is remembered for about this many objectives.
const MEMORY: f64 = 16.0;
/// A tenant below this part of its fair share is protected.
const BELOW: f64 = 0.8;

#[derive(Clone, Copy, Debug, Default)]
struct TenantShare {
    clock: f64,
    waiting: u32,
    /// Decayed sum of what it asked for.
    asked: f64,
    asked_at: Nanos,
    weight: f64,
}

/// All tenants seen.
#[derive(Debug)]
pub(crate) struct TenantShares {
    tenants: [TenantShare; SLOTS],
    /// The first position of each tenant in a queue, and the next of each position; scratch of `pick`.
    heads: [u32; SLOTS],
    next: Vec<u32>,
    /// The only slot seen so far, or none if there are several.
    only: Option<usize>,
    several: bool,
}

impl Default for TenantShares {
    fn default() -> Self {
        Self {
            tenants: [TenantShare::default(); SLOTS],
            heads: [NIL; SLOTS],
            next: Vec::new(),
            only: None,
            several: false,
        }
    }
}

impl TenantShares {
    /// A request waits from now on.
    pub(crate) fn arrived(&mut self, request: &WaitingRequest, now: Nanos, config: &Config) {
        let &WaitingRequest { tenant, size, deadline, .. } = request;
        let slot = slot(tenant);
        self.several |= self.only.is_some_and(|only| only != slot);
        self.only = Some(slot);
        if self.several {
            self.wake(slot);
            let given = if deadline == NEVER { GIVEN } else { request.given() };
            let weights = config.tenant_weights.iter();
            let weight = weights.clone().find(|(it, _)| *it == tenant).map_or(1, |(_, it)| *it);
            let it = &mut self.tenants[slot];
            it.weight = f64::from(weight.max(1));
            it.asked = faded(it, now, given) + f64::from(size);
            it.asked_at = now;
        }
        self.tenants[slot].waiting += 1;
    }

    /// A request of this tenant waits no more.
    pub(crate) fn left(&mut self, tenant: u32) {
        self.tenants[slot(tenant)].waiting -= 1;
    }

    /// This much of the tenant is dispatched.
    pub(crate) fn served(&mut self, tenant: u32, size: u32) {
        if self.several {
            let it = &mut self.tenants[slot(tenant)];
            it.clock += f64::from(size) / it.weight.max(1.0);
        }
    }

    /// Whether requests of several tenants wait.
    pub(crate) fn contested(&self) -> bool {
        self.several && self.tenants.iter().filter(|it| it.waiting > 0).count() > 1
    }

    /// A tenant that was inactive gets no credit for that time.
    fn wake(&mut self, slot: usize) {
        if self.tenants[slot].waiting == 0 {
            let active = self.tenants.iter().filter(|it| it.waiting > 0);
            let behind = active.map(|it| it.clock).fold(f64::INFINITY, f64::min);
            if behind.is_finite() {
                let it = &mut self.tenants[slot];
                it.clock = it.clock.max(behind);
            }
        }
    }

    /// Chooses positions from `skip` on by turns, up to `size`; ascending in `picked`.
    pub(crate) fn pick(
        &mut self,
        queue: &SortedQueue,
        skip: usize,
        size: u64,
        config: &Config,
        picked: &mut Vec<u32>,
    ) {
        picked.clear();
        self.heads = [NIL; SLOTS];
        let end = queue.waiting.len().min(skip + SCAN);
        self.next.clear();
        self.next.resize(end - skip, NIL);
        for position in (skip..end).rev() {
            let slot = slot(queue.waiting[position].tenant);
            self.next[position - skip] = std::mem::replace(&mut self.heads[slot], position as u32);
        }
        let mut clocks = self.tenants.map(|it| it.clock);
        let (mut left, mut items, mut cost) = (size, 0, 0);
        while let Some(slot) = self.turn(&clocks) {
            let position = self.heads[slot];
            let entry = &queue.waiting[position as usize];
            items += u64::from(entry.items);
            cost += u128::from(entry.cost);
            if u64::from(entry.size) > left || !config.holds(items, cost) {
                break;
            }
            left -= u64::from(entry.size);
            clocks[slot] += f64::from(entry.size) / self.tenants[slot].weight.max(1.0);
            picked.push(position);
            self.heads[slot] = self.next[position as usize - skip];
        }
        picked.sort_unstable();
    }

    fn turn(&self, clocks: &[f64; SLOTS]) -> Option<usize> {
        let open = (0..SLOTS).filter(|&slot| self.heads[slot] != NIL);
        open.min_by(|&a, &b| clocks[a].total_cmp(&clocks[b]))
    }

    /// Whether an active tenant asks for less than its share.
    pub(crate) fn protects(&self, now: Nanos, given: f64) -> bool {
        if !self.several {
            return false;
        }
        let asked = self.tenants.map(|it| (faded(&it, now, given), it.weight));
        let active = || asked.iter().filter(|(asked, _)| *asked > 0.5);
        let (sum, weights) = active().fold((0.0, 0.0), |(a, w), it| (a + it.0, w + it.1));
        active().count() > 1 && active().any(|(it, weight)| *it < BELOW * sum * weight / weights)
    }

    /// Whether a tenant holds more than its share of a queue of this length.
    pub(crate) fn over_share(&self, tenant: u32, queue: u32) -> bool {
        self.excess(slot(tenant), queue) > 0.0
    }

    /// Whether this tenant is the one that is furthest above its share of such a queue.
    pub(crate) fn heaviest(&self, tenant: u32, queue: u32) -> bool {
        let slots = (0..SLOTS).filter(|&slot| self.tenants[slot].waiting > 0);
        let most = slots.max_by(|&a, &b| self.excess(a, queue).total_cmp(&self.excess(b, queue)));
        most == Some(slot(tenant)) && self.excess(slot(tenant), queue) > 0.0
    }

    fn excess(&self, slot: usize, queue: u32) -> f64 {
        let active = self.tenants.iter().filter(|it| it.waiting > 0);
        let weights: f64 = active.map(|it| it.weight.max(1.0)).sum();
        let it = &self.tenants[slot];
        f64::from(it.waiting) - f64::from(queue) * it.weight.max(1.0) / weights.max(1.0)
    }
}

fn faded(tenant: &TenantShare, now: Nanos, given: f64) -> f64 {
    let age = now.saturating_sub(tenant.asked_at) as f64 / (MEMORY * given.max(1.0));
    tenant.asked / (1.0 + age * (1.0 + age * 0.5))
}

/// Small numbers have slots of their own.
fn slot(tenant: u32) -> usize {
    if (tenant as usize) < SLOTS {
        return tenant as usize;
    }
    (tenant.wrapping_mul(0x9e37_79b1) >> 26) as usize
}

#[cfg(test)]
mod tests;
