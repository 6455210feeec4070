//! Sequences by themselves: turns, workers and ends, without a model around them.

use std::time::Duration;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn limits() -> SequenceLimits {
    SequenceLimits {
        idle: 10 * SECOND,
        life: Duration::ZERO,
        sequences: 4,
        queue: 2,
        abreast: 1,
        unknown: UnknownSequences::Begin,
    }
}

struct Play {
    sequences: Sequences<&'static str>,
    start: Instant,
}

impl Play {
    fn new(limits: SequenceLimits, workers: u32) -> Self {
        let mut sequences = Sequences::new(limits, KeptSequences::default());
        (0..workers).for_each(|worker| sequences.worker_up(worker));
        Self { sequences, start: Instant::now() }
    }

    fn at(&self, seconds: u32) -> Instant {
        self.start + seconds * SECOND
    }

    fn arrive(&mut self, at: u32, id: &str, what: &'static str) -> Option<SequenceRejection> {
        let now = self.at(at);
        let name = SequenceName {
            id: id.to_owned(),
            chosen: !id.starts_with("ts-seq-"),
            starts: false,
            made: id.starts_with("ts-seq-"),
        };
        match self.sequences.find_room(now, &name) {
            Ok(key) => self.sequences.join(now, key, None, what),
            Err(rejection) => return Some(rejection),
        }
        None
    }

    /// Every request whose turn it is, as `what@worker`, with `!` where it begins anew.
    fn turns(&mut self) -> Vec<(usize, String)> {
        let turns = std::iter::from_fn(|| self.sequences.next());
        let word = |turn: Turn<&str>| {
            let anew = if turn.anew { "!" } else { "" };
            (turn.sequence, format!("{}@{}{anew}", turn.what, turn.worker))
        };
        turns.map(word).collect()
    }

    #[track_caller]
    fn expect(&mut self, want: &[&str]) -> Vec<usize> {
        let (keys, words): (Vec<_>, Vec<_>) = self.turns().into_iter().unzip();
        assert_eq!(words, want);
        keys
    }
}

#[test]
fn one_of_a_sequence_runs_at_a_time_and_in_order() {
    let mut play = Play::new(limits(), 1);
    for what in ["a1", "a2", "a3"] {
        assert_eq!(play.arrive(0, "a", what), None);
        assert_eq!(play.arrive(0, "b", what), None);
    }
    let keys = play.expect(&["a1@0", "a1@0"]);
    play.sequences.answered(play.at(1), keys[1]);
    play.expect(&["a2@0"]);
    play.sequences.answered(play.at(2), keys[0]);
    play.expect(&["a2@0"]);
    assert_eq!(play.sequences.waiting, 2);
}

#[test]
fn sequences_spread_over_the_workers_and_stay_where_they_are() {
    let mut play = Play::new(limits(), 2);
    for id in ["a", "b", "c", "d"] {
        play.arrive(0, id, "x");
    }
    let keys = play.expect(&["x@0", "x@1", "x@0", "x@1"]);
    play.sequences.answered(play.at(1), keys[3]);
    play.arrive(1, "d", "y");
    play.expect(&["y@1"]);
}

#[test]
fn too_many_sequences_and_too_long_a_queue_are_rejected() {
    let mut play = Play::new(limits(), 1);
    for what in ["1", "2", "3"] {
        assert_eq!(play.arrive(0, "a", what), None);
    }
    assert_eq!(play.arrive(0, "a", "4"), Some(SequenceRejection::Backlog { most: 2 }));
    play.expect(&["1@0"]);
    assert_eq!(play.arrive(0, "a", "4"), Some(SequenceRejection::Backlog { most: 2 }));
    for id in ["b", "c", "d"] {
        assert_eq!(play.arrive(0, id, "1"), None);
    }
    assert_eq!(play.arrive(0, "e", "1"), Some(SequenceRejection::TooMany { most: 4 }));
}

#[test]
fn a_sequence_that_no_client_has_named_gives_way_when_it_is_idle() {
    let mut play = Play::new(SequenceLimits { sequences: 2, ..limits() }, 1);
    play.arrive(0, "ts-seq-1", "1");
    play.arrive(0, "ts-seq-2", "2");
    let keys = play.expect(&["1@0", "2@0"]);
    assert!(play.arrive(1, "a", "3").is_some(), "both are busy");
    play.sequences.answered(play.at(2), keys[1]);
    play.sequences.answered(play.at(3), keys[0]);
    assert_eq!(play.arrive(4, "a", "3"), None);
    let named =
        SequenceName { id: "ts-seq-1".to_owned(), chosen: true, starts: false, made: false };
    let key = play.sequences.find_room(play.at(4), &named);
    assert_eq!(key, Ok(keys[0]), "it was the younger one");
    play.sequences.join(play.at(4), keys[0], None, "4");
    play.expect(&["3@0", "4@0"]);
    play.sequences.answered(play.at(5), keys[0]);
    assert!(play.arrive(5, "b", "5").is_some(), "by now its client knows it");
}

#[test]
fn an_idle_sequence_ends_and_makes_room() {
    let mut play = Play::new(SequenceLimits { sequences: 1, ..limits() }, 1);
    play.arrive(0, "a", "1");
    let keys = play.expect(&["1@0"]);
    play.sequences.answered(play.at(5), keys[0]);
    assert_eq!(play.sequences.alarm, Some(play.at(15)));
    play.sequences.expire(play.at(14));
    assert!(play.arrive(14, "b", "1").is_some());
    play.sequences.expire(play.at(15));
    assert_eq!((play.arrive(15, "b", "1"), play.sequences.alarm), (None, None));
}

#[test]
fn a_life_limit_ends_a_busy_sequence_after_the_request_under_way() {
    let mut play = Play::new(SequenceLimits { life: 5 * SECOND, ..limits() }, 2);
    play.arrive(0, "a", "1");
    play.arrive(1, "a", "2");
    let keys = play.expect(&["1@0"]);
    assert_eq!(play.sequences.alarm, Some(play.at(5)));
    play.sequences.expire(play.at(5));
    assert_eq!(play.sequences.alarm, None, "it is over when it is answered, and not before");
    play.sequences.answered(play.at(6), keys[0]);
    play.expect(&["2@0!"]);
    assert_eq!(play.sequences.alarm, Some(play.at(11)));
}

#[test]
fn a_sequence_whose_time_was_over_is_not_gone_on_with_but_may_begin_again() {
    let unknown = UnknownSequences::BeginOwn;
    let mut play = Play::new(SequenceLimits { life: 5 * SECOND, unknown, ..limits() }, 1);
    play.arrive(0, "idle", "1");
    play.arrive(0, "old", "1");
    let keys = play.expect(&["1@0", "1@0"]);
    play.sequences.answered(play.at(1), keys[0]);
    play.sequences.expire(play.at(5));
    play.sequences.answered(play.at(6), keys[1]);
    for id in ["idle", "old"] {
        assert_eq!(play.arrive(7, id, "2"), Some(SequenceRejection::Expired));
        let again = SequenceName { id: id.to_owned(), chosen: true, starts: true, made: false };
        let key = play.sequences.find_room(play.at(7), &again).expect("it begins");
        play.sequences.join(play.at(7), key, None, "3");
        assert_eq!(play.arrive(7, id, "4"), None);
    }
    play.expect(&["3@0", "3@0"]);
    play.sequences.end(play.at(8), "idle");
}

#[test]
fn in_torchserve_an_id_of_the_client_s_own_begins_again_after_its_time() {
    let mut play = Play::new(limits(), 1);
    for id in ["own", "ts-seq-1"] {
        play.arrive(0, id, "1");
        let keys = play.expect(&["1@0"]);
        play.sequences.answered(play.at(1), keys[0]);
    }
    play.sequences.expire(play.at(60));
    assert_eq!(play.arrive(61, "own", "2"), None);
    assert_eq!(play.arrive(61, "ts-seq-1", "2"), Some(SequenceRejection::Expired));
    play.expect(&["2@0"]);
}

#[test]
fn the_model_ends_a_sequence_by_name() {
    let mut play = Play::new(limits(), 1);
    play.arrive(0, "a", "1");
    let keys = play.expect(&["1@0"]);
    play.sequences.end(play.at(1), "a");
    play.sequences.end(play.at(1), "unknown");
    play.sequences.answered(play.at(1), keys[0]);
    assert!(play.sequences.sequences.is_empty() && play.sequences.by_id.is_empty());
    assert_eq!(play.sequences.workers[&0], 0);
}

#[test]
fn a_lost_worker_moves_its_sequences_which_begin_anew() {
    let mut play = Play::new(limits(), 2);
    play.arrive(0, "a", "a1");
    play.arrive(0, "b", "b1");
    play.arrive(0, "a", "a2");
    let keys = play.expect(&["a1@0", "b1@1"]);
    play.sequences.worker_gone(0);
    play.sequences.answered(play.at(1), keys[0]);
    play.expect(&["a2@1!"]);
    play.sequences.answered(play.at(2), keys[0]);
    play.arrive(2, "a", "a3");
    play.expect(&["a3@1"]);
}

#[test]
fn without_a_worker_they_wait_for_one() {
    let mut play = Play::new(limits(), 0);
    play.arrive(0, "a", "1");
    play.expect(&[]);
    play.sequences.worker_up(7);
    play.expect(&["1@7"]);
}

#[test]
fn one_that_never_reached_its_worker_goes_first_with_another() {
    let mut play = Play::new(limits(), 2);
    play.arrive(0, "a", "1");
    play.arrive(0, "a", "2");
    let turn = play.sequences.next().unwrap();
    play.sequences.put_back(play.at(1), turn);
    play.expect(&["1@1!"]);
    assert_eq!(play.sequences.waiting, 1);
}

#[test]
fn deadlines_pass_while_they_wait() {
    let mut play = Play::new(limits(), 1);
    play.arrive(0, "a", "1");
    play.expect(&["1@0"]);
    let (now, deadline) = (play.at(0), Some(play.at(3)));
    let name = SequenceName { id: "a".to_owned(), chosen: true, starts: false, made: false };
    let key = play.sequences.find_room(now, &name).unwrap();
    play.sequences.join(now, key, deadline, "late");
    assert_eq!(play.sequences.alarm, deadline);
    assert_eq!(play.sequences.expire(play.at(3)), ["late"]);
    assert_eq!((play.sequences.waiting, play.sequences.alarm), (0, None));
}

#[test]
fn where_several_may_run_the_next_of_a_sequence_does_not_wait_for_the_first() {
    let mut play = Play::new(SequenceLimits { abreast: 2, ..limits() }, 1);
    assert_eq!(play.arrive(0, "a", "a1"), None);
    let keys = play.expect(&["a1@0"]);
    assert_eq!(play.arrive(0, "a", "a2"), None);
    play.expect(&["a2@0"]);
    for what in ["a3", "a4"] {
        assert_eq!(play.arrive(0, "a", what), None);
    }
    play.expect(&[]);
    assert!(play.arrive(0, "a", "a5").is_some(), "two wait, as many as may");
    play.sequences.answered(play.at(1), keys[0]);
    play.expect(&["a3@0"]);
    play.sequences.end(play.at(2), "a");
    play.sequences.answered(play.at(3), keys[0]);
    play.expect(&[]);
    play.sequences.answered(play.at(4), keys[0]);
    play.expect(&["a4@0"]);
}

#[test]
fn requests_that_come_back_together_keep_their_order() {
    let mut play = Play::new(SequenceLimits { abreast: 3, ..limits() }, 2);
    for what in ["a1", "a2", "a3"] {
        assert_eq!(play.arrive(0, "a", what), None);
    }
    let turns: Vec<_> = std::iter::from_fn(|| play.sequences.next()).collect();
    for turn in turns.into_iter().rev() {
        play.sequences.put_back(play.at(1), turn);
    }
    play.expect(&["a1@1!", "a2@1", "a3@1"]);
}

#[test]
fn a_sequence_of_another_server_is_told_so_and_begins_only_when_it_says_so() {
    let name = |id: &str, starts: bool| {
        let made = id.starts_with("ts-seq-");
        SequenceName { id: id.to_owned(), chosen: true, starts, made }
    };
    let unknown = Err(SequenceRejection::Unknown);
    for (rule, own, made) in [
        (UnknownSequences::Begin, true, true),
        (UnknownSequences::BeginOwn, true, false),
        (UnknownSequences::Rejected, false, false),
    ] {
        let mut play = Play::new(SequenceLimits { unknown: rule, ..limits() }, 1);
        let now = play.at(0);
        let mut begins = |id: &str, starts| play.sequences.find_room(now, &name(id, starts));
        for (id, expected) in [("own", own), ("ts-seq-1", made)] {
            let found = begins(id, false);
            assert_eq!(found.is_ok(), expected, "{rule:?} {id}");
            assert!(found.is_ok() || found.map(drop) == unknown);
            assert!(begins(id, true).is_ok(), "{rule:?} {id} begins");
            assert!(begins(id, false).is_ok(), "{rule:?} {id} goes on");
        }
    }
}
