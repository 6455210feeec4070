//! Whether an origin with several requests at once is a fixed set of clients that come back.
//!
//! A connection that carries one request at a time is one client, and its next request is a return.
//! One that carries many may be a fixed set of clients that each wait for their answer, or a proxy
//! in front of many. A fixed set comes back completely now and then, and no request comes that was
//! not preceded by an answer. Independent clients come by chance, so that soon there are more
//! requests than answers, or fewer. It only counts; it knows no times.

/// Requests after which an origin is judged anew, and how often in a row it must pass: independent
/// clients may look like a fixed set once, by chance.
const WINDOW: u32 = 64;
const PASSES: u32 = 2;

/// What is known of the clients behind one origin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multiplex {
    /// Whether it has ever been owed two requests: it is more than one client.
    several: bool,
    /// Windows in a row in which all came back.
    clean: u32,
    seen: u32,
    /// Of this window: requests that were not expected, and the fewest that were expected.
    surprises: u32,
    fewest: u32,
}

impl Multiplex {
    /// A request was answered, so that this many are owed; whether its client is expected back.
    pub(crate) fn answered(&mut self, owed: u32) -> bool {
        self.several |= owed > 1;
        !self.several || self.clean >= PASSES
    }

    /// A request came. Returns whether it is that of a client that came back.
    pub(crate) fn arrived(&mut self, owed: &mut u32) -> bool {
        let back = *owed > 0;
        *owed -= u32::from(back);
        if !self.several {
            return back;
        }
        self.fewest = if self.seen == 0 { *owed } else { self.fewest.min(*owed) };
        self.surprises += u32::from(!back);
        self.seen += 1;
        if self.seen == WINDOW {
            let clean = self.surprises == 0 && self.fewest == 0;
            self.clean = if clean { (self.clean + 1).min(PASSES) } else { 0 };
            // Clients that were expected all the time have gone.
            *owed -= self.fewest;
            (self.seen, self.surprises) = (0, 0);
        }
        back && self.clean >= PASSES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_at_a_time_is_expected_back() {
        let (mut multiplex, mut owed) = (Multiplex::default(), 0);
        assert!(!multiplex.arrived(&mut owed), "no request was answered yet");
        for _ in 0..3 {
            owed += 1;
            assert!(multiplex.answered(owed));
            assert!(multiplex.arrived(&mut owed));
        }
    }

    #[test]
    fn a_set_of_clients_is_expected_back_after_two_windows_and_not_after_a_new_client() {
        let (mut multiplex, mut owed) = (Multiplex::default(), 0);
        let mut round = |clients: u32| {
            owed += 4;
            (0..4).for_each(|_| _ = multiplex.answered(owed));
            (0..clients).map(|_| multiplex.arrived(&mut owed)).filter(|&back| back).count()
        };
        assert_eq!((0..2 * WINDOW / 4 - 1).map(|_| round(4)).sum::<usize>(), 0);
        (0..WINDOW / 4).for_each(|_| _ = round(4));
        assert_eq!(round(4), 4);
        (0..2 * WINDOW / 5).for_each(|_| _ = round(5));
        assert_eq!(round(4), 0);
    }

    #[test]
    fn clients_that_have_gone_are_not_expected_for_ever() {
        let (mut multiplex, mut owed) = (Multiplex::default(), 10);
        multiplex.answered(owed);
        for _ in 0..4 * WINDOW {
            owed += 2;
            multiplex.answered(owed);
            (0..2).for_each(|_| _ = multiplex.arrived(&mut owed));
        }
        assert_eq!(owed, 0);
        assert_eq!(multiplex.clean, PASSES);
    }
}
