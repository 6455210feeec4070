//! Whether the requests of one origin that has several at once are those of clients who come back.
//!
//! A connection that carries one request at a time is one client, and its next request is a return.
//! One that carries many may be a fixed set of clients who each wait for their answer, or a proxy in
//! front of strangers. Of a fixed set all are known: now and then everybody has come back, and
//! nobody comes who was not answered before. Strangers come by chance, so that soon there are more
//! of them than were ever answered, or fewer than were. It counts and judges; it knows no times.

/// Requests after which an origin is judged anew, and how often in a row it must pass: strangers
/// may look like a fixed set once, by chance.
const WINDOW: u32 = 64;
const PASSES: u32 = 2;

/// What is known of the clients behind one origin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OriginClients {
    /// Whether it has ever been owed two requests: it is more than one client.
    several: bool,
    /// Windows in a row in which they all came back.
    clean: u32,
    seen: u32,
    /// Of this window: requests that nobody owed, and the fewest that were owed.
    surprises: u32,
    fewest: u32,
}

impl OriginClients {
    /// A request was answered, so that this many are owed; whether its client is expected back.
    pub(crate) fn answered(&mut self, owed: u32) -> bool {
        self.several |= owed > 1;
        !self.several || self.clean >= PASSES
    }

    /// A request came; whether it is that of a client who came back.
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
            // Those who were owed all the time have gone.
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
    fn one_client_at_a_time_is_taken_at_its_word() {
        let (mut clients, mut owed) = (OriginClients::default(), 0);
        assert!(!clients.arrived(&mut owed), "nobody was answered yet");
        for _ in 0..3 {
            owed += 1;
            assert!(clients.answered(owed));
            assert!(clients.arrived(&mut owed));
        }
    }

    #[test]
    fn a_set_of_clients_is_believed_after_two_windows_and_doubted_after_a_stranger() {
        let (mut clients, mut owed) = (OriginClients::default(), 0);
        let mut round = |clients: u32| {
            owed += 4;
            (0..4).for_each(|_| _ = clients.answered(owed));
            (0..clients).map(|_| clients.arrived(&mut owed)).filter(|&back| back).count()
        };
        assert_eq!((0..2 * WINDOW / 4 - 1).map(|_| round(4)).sum::<usize>(), 0);
        (0..WINDOW / 4).for_each(|_| _ = round(4));
        assert_eq!(round(4), 4);
        (0..2 * WINDOW / 5).for_each(|_| _ = round(5));
        assert_eq!(round(4), 0);
    }

    #[test]
    fn clients_who_have_gone_are_not_owed_for_ever() {
        let (mut clients, mut owed) = (OriginClients::default(), 10);
        clients.answered(owed);
        for _ in 0..4 * WINDOW {
            owed += 2;
            clients.answered(owed);
            (0..2).for_each(|_| _ = clients.arrived(&mut owed));
        }
        assert_eq!(owed, 0);
        assert_eq!(clients.clean, PASSES);
    }
}
