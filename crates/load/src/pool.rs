//! A pool of connections, as clients keep them: which of the free ones is taken, when a new one is
//! opened, and who waits. It opens nothing itself.

use std::collections::VecDeque;

/// Which of the free connections is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PoolOrder {
    /// The one that became free last, as urllib3, Go and most proxies do.
    #[default]
    LastFreed,
    /// The one that has been free longest.
    LongestFree,
    /// Any.
    Random,
}

/// A pool; `C` is a connection and `J` what it is to do.
#[derive(Debug)]
pub(crate) struct ConnectionPool<C, J> {
    order: PoolOrder,
    limit: usize,
    opened: usize,
    free: VecDeque<C>,
    waiting: VecDeque<J>,
    chance: fastrand::Rng,
}

/// What a request that comes is to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PoolChoice<C, J> {
    /// Use this connection.
    Use(C, J),
    /// Open a connection: the pool's how-manieth.
    Open(usize, J),
    /// It waits in the pool.
    Wait,
}

impl<C, J> ConnectionPool<C, J> {
    pub(crate) fn new(order: PoolOrder, limit: usize, seed: u64) -> Self {
        Self {
            order,
            limit,
            opened: 0,
            free: VecDeque::new(),
            waiting: VecDeque::new(),
            chance: fastrand::Rng::with_seed(seed),
        }
    }

    /// A request comes. Nobody waits while a connection is free.
    pub(crate) fn take(&mut self, job: J) -> PoolChoice<C, J> {
        if let Some(connection) = self.free_one() {
            return PoolChoice::Use(connection, job);
        }
        if self.opened < self.limit {
            self.opened += 1;
            return PoolChoice::Open(self.opened - 1, job);
        }
        self.waiting.push_back(job);
        PoolChoice::Wait
    }

    fn free_one(&mut self) -> Option<C> {
        match self.order {
            PoolOrder::LastFreed => self.free.pop_back(),
            PoolOrder::LongestFree => self.free.pop_front(),
            PoolOrder::Random if self.free.is_empty() => None,
            PoolOrder::Random => {
                let at = self.chance.usize(..self.free.len());
                self.free.swap_remove_back(at)
            }
        }
    }

    /// A connection becomes free; it is used again at once if somebody waits.
    pub(crate) fn give_back(&mut self, connection: C) -> Option<(C, J)> {
        match self.waiting.pop_front() {
            Some(job) => Some((connection, job)),
            None => {
                self.free.push_back(connection);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool with the connections 0, 1 and 2 that became free in this order.
    fn three_free(order: PoolOrder) -> ConnectionPool<usize, ()> {
        let mut pool = ConnectionPool::new(order, 3, 7);
        for number in 0..3 {
            assert_eq!(pool.take(()), PoolChoice::Open(number, ()));
        }
        for number in 0..3 {
            assert_eq!(pool.give_back(number), None);
        }
        pool
    }

    fn taken(pool: &mut ConnectionPool<usize, ()>) -> usize {
        match pool.take(()) {
            PoolChoice::Use(connection, ()) => connection,
            other @ (PoolChoice::Open(..) | PoolChoice::Wait) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_order_decides_which_free_connection_is_taken() {
        let mut pool = three_free(PoolOrder::LastFreed);
        assert_eq!([taken(&mut pool), taken(&mut pool), taken(&mut pool)], [2, 1, 0]);
        let mut pool = three_free(PoolOrder::LongestFree);
        assert_eq!([taken(&mut pool), taken(&mut pool), taken(&mut pool)], [0, 1, 2]);
    }

    #[test]
    fn a_random_order_takes_each_about_as_often() {
        let mut pool = three_free(PoolOrder::Random);
        let mut counts = [0; 3];
        for _ in 0..3000 {
            let connection = taken(&mut pool);
            counts[connection] += 1;
            assert_eq!(pool.give_back(connection), None);
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn beyond_the_limit_requests_wait_in_their_order() {
        let mut pool: ConnectionPool<usize, char> = ConnectionPool::new(PoolOrder::LastFreed, 1, 7);
        assert_eq!(pool.take('a'), PoolChoice::Open(0, 'a'));
        assert_eq!(pool.take('b'), PoolChoice::Wait);
        assert_eq!(pool.take('c'), PoolChoice::Wait);
        assert_eq!(pool.give_back(0), Some((0, 'b')));
        assert_eq!(pool.give_back(0), Some((0, 'c')));
        assert_eq!(pool.give_back(0), None);
        assert_eq!(pool.take('d'), PoolChoice::Use(0, 'd'));
    }
}
