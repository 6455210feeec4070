//! Which connection a request comes over: its own, one of a pool, or one that all share.
//!
//! A server sees connections, not callers. Nearly every client keeps free connections in a pool and
//! uses them again, so that a request that has nothing to do with an earlier answer still comes over
//! a connection that was answered a moment ago. HTTP/2 and gRPC send all requests over one.

use std::collections::VecDeque;

use crate::dice::Dice;

/// Whose requests come over the connections of pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionUse {
    /// Nobody's: every open request has a new connection, every client keeps its own.
    #[default]
    Own,
    /// The open requests come from pools; clients that wait for their answer keep their own.
    Pooled(Pools),
    /// All requests come through a proxy, those of clients that wait for their answer too.
    Proxied(Pools),
}

/// Pools of connections; each request comes from one of them by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pools {
    /// How many pools there are, as many as there are client processes.
    pub count: usize,
    /// The most connections that a pool keeps when they are free.
    pub size: usize,
    /// Which free connection is used.
    pub order: ReuseOrder,
    /// What happens to a request that finds none free.
    pub when_full: WhenFull,
    /// The seed of what is left to chance.
    pub seed: u64,
}

/// Which free connection of a pool is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReuseOrder {
    /// The one that became free last: urllib3, Go's transport, hyper, nginx.
    LastFreed,
    /// The one that has been free for longest.
    LongestFree,
    /// Any of them.
    Random,
    /// There is one connection, and it carries all requests at once: HTTP/2 and gRPC.
    Shared,
}

/// What happens to a request when as many connections are in use as a pool keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It opens another one, which is closed after the answer: urllib3, Go, hyper.
    Opens,
    /// It waits until one is free: aiohttp, and urllib3 with `block=True`.
    Waits,
}

/// Connections get numbers from here on; clients with their own have smaller ones.
const FIRST: u64 = 1 << 40;

/// The pools while a load is played.
#[derive(Debug)]
pub(crate) struct PoolState {
    pools: Pools,
    free: Vec<VecDeque<u64>>,
    in_use: Vec<usize>,
    opened: u64,
    dice: Dice,
}

impl PoolState {
    pub(crate) fn new(pools: Pools) -> Self {
        let pools = Pools { count: pools.count.max(1), size: pools.size.max(1), ..pools };
        Self {
            pools,
            free: vec![VecDeque::new(); pools.count],
            in_use: vec![0; pools.count],
            opened: 0,
            dice: Dice::new(pools.seed ^ 0xc0de),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.pools.count
    }

    /// The pool of a new request.
    pub(crate) fn choose(&mut self) -> usize {
        if self.pools.count == 1 { 0 } else { self.dice.below(self.pools.count) }
    }

    /// The connection for a request of this pool; none if it has to wait.
    pub(crate) fn take(&mut self, pool: usize) -> Option<u64> {
        let Pools { size, order, when_full, .. } = self.pools;
        if order == ReuseOrder::Shared {
            return Some(FIRST + pool as u64);
        }
        let free = &mut self.free[pool];
        let found = match order {
            ReuseOrder::LastFreed => free.pop_back(),
            ReuseOrder::LongestFree => free.pop_front(),
            ReuseOrder::Random | ReuseOrder::Shared => {
                let at = self.dice.below(free.len());
                free.swap_remove_back(at)
            }
        };
        if found.is_none() && when_full == WhenFull::Waits && self.in_use[pool] >= size {
            return None;
        }
        self.in_use[pool] += 1;
        found.or_else(|| {
            self.opened += 1;
            Some(FIRST + self.opened)
        })
    }

    /// A request of this pool was answered over this connection.
    pub(crate) fn put_back(&mut self, pool: usize, connection: u64) {
        if self.pools.order == ReuseOrder::Shared {
            return;
        }
        self.in_use[pool] -= 1;
        if self.free[pool].len() < self.pools.size {
            self.free[pool].push_back(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(size: usize, order: ReuseOrder, when_full: WhenFull) -> PoolState {
        PoolState::new(Pools { count: 1, size, order, when_full, seed: 1 })
    }

    #[test]
    fn free_connections_are_used_again_in_the_order_of_the_pool() {
        let used = |order| {
            let mut state = pools(8, order, WhenFull::Opens);
            let all: Vec<u64> = (0..3).map_while(|_| state.take(0)).collect();
            all.iter().for_each(|&connection| state.put_back(0, connection));
            let again = state.take(0);
            all.iter().position(|&connection| Some(connection) == again)
        };
        assert_eq!(used(ReuseOrder::LastFreed), Some(2));
        assert_eq!(used(ReuseOrder::LongestFree), Some(0));
        assert!(used(ReuseOrder::Random).is_some());
        assert_eq!(used(ReuseOrder::Shared), Some(0), "there is only one");
    }

    #[test]
    fn a_full_pool_opens_another_connection_or_lets_wait() {
        let mut opens = pools(1, ReuseOrder::LastFreed, WhenFull::Opens);
        let (first, second) = (opens.take(0), opens.take(0));
        assert!(second.is_some() && first != second);
        first.into_iter().chain(second).for_each(|connection| opens.put_back(0, connection));
        assert_eq!(opens.take(0), first);
        assert_ne!(opens.take(0), second, "it was closed: the pool keeps one");
        let mut waits = pools(1, ReuseOrder::LastFreed, WhenFull::Waits);
        let only = waits.take(0);
        assert_eq!(waits.take(0), None);
        only.into_iter().for_each(|connection| waits.put_back(0, connection));
        assert_eq!(waits.take(0), only);
    }
}
