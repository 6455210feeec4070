//! One gauge of several processes, put together as `prometheus_client` does in its multiprocess mode.
//!
//! The library's user says with each gauge what several processes make of it. A process that has ended goes on to
//! count, but for the modes whose names begin with `live`. It reads no line and knows no page.

/// Ended processes at most that are still shown by themselves.
const ENDED_MAX: usize = 64;

/// What the levels of several processes become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelMode {
    rule: LevelRule,
    /// Whether only processes count that live.
    live: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LevelRule {
    /// Each is shown, with its process id.
    All,
    Max,
    Min,
    Sum,
    /// The one that changed last.
    MostRecent,
}

impl LevelMode {
    /// By the name that the library has for it.
    pub(super) fn named(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("live");
        let rule = match rest.unwrap_or(name) {
            "all" => LevelRule::All,
            "max" => LevelRule::Max,
            "min" => LevelRule::Min,
            "sum" => LevelRule::Sum,
            "mostrecent" => LevelRule::MostRecent,
            _ => return None,
        };
        Some(Self { rule, live: rest.is_some() })
    }
}

/// A process of a worker: the worker's id, and how many were started before it.
pub(super) type ProcessKey = (u32, u32);

#[derive(Debug)]
struct ProcessLevel {
    /// None after its end.
    process: Option<ProcessKey>,
    pid: u32,
    value: f64,
}

/// The levels of one series. The one that changed last is at the end.
#[derive(Debug, Default)]
pub(super) struct Levels(Vec<ProcessLevel>);

impl Levels {
    /// A process has set its level.
    pub(super) fn set(&mut self, process: ProcessKey, pid: u32, value: f64) {
        self.0.retain(|level| level.process != Some(process));
        self.0.push(ProcessLevel { process: Some(process), pid, value });
    }

    /// A process has ended.
    pub(super) fn end(&mut self, process: ProcessKey, mode: LevelMode) {
        let Some(at) = self.0.iter().position(|level| level.process == Some(process)) else {
            return;
        };
        let is_last = at + 1 == self.0.len();
        let ended = self.0.remove(at);
        if mode.live || mode.rule == LevelRule::MostRecent && !is_last {
            return;
        }
        // One place is enough for what is shown as one number.
        let places = if mode.rule == LevelRule::All { ENDED_MAX } else { 1 };
        let before: Vec<usize> =
            (0..self.0.len()).filter(|&at| self.0[at].process.is_none()).collect();
        let oldest = (before.len() >= places).then(|| self.0.remove(before[0]).value);
        let value = match oldest {
            Some(oldest) if mode.rule != LevelRule::All => mode.rule.joined(oldest, ended.value),
            _ => ended.value,
        };
        self.0.push(ProcessLevel { process: None, value, ..ended });
    }

    /// What is shown: numbers, with the process id where each is shown.
    pub(super) fn shown(&self, mode: LevelMode) -> Vec<(Option<u32>, f64)> {
        if mode.rule == LevelRule::All {
            return self.0.iter().map(|level| (Some(level.pid), level.value)).collect();
        }
        let values = self.0.iter().map(|level| level.value);
        values
            .reduce(|a, b| mode.rule.joined(a, b))
            .map(|value| (None, value))
            .into_iter()
            .collect()
    }
}

impl LevelRule {
    fn joined(self, earlier: f64, later: f64) -> f64 {
        match self {
            Self::Max => earlier.max(later),
            Self::Min => earlier.min(later),
            Self::Sum => earlier + later,
            Self::All | Self::MostRecent => later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown after three processes have set 4, 1 and 2 and the last of them has ended, then after the first
    /// one has.
    fn shown(name: &str) -> [Vec<(Option<u32>, f64)>; 2] {
        let mode = LevelMode::named(name).expect("a mode");
        let mut levels = Levels::default();
        for (worker, value) in [(1, 4.0), (2, 1.0), (3, 2.0)] {
            levels.set((worker, 0), worker * 10, value);
        }
        levels.end((3, 0), mode);
        let first = levels.shown(mode);
        levels.end((1, 0), mode);
        [first, levels.shown(mode)]
    }

    #[test]
    fn each_mode_is_what_the_library_says_of_it() {
        let one = |value| vec![(None, value)];
        assert_eq!(shown("sum"), [one(7.0), one(7.0)]);
        assert_eq!(shown("livesum"), [one(5.0), one(1.0)]);
        assert_eq!(shown("max"), [one(4.0), one(4.0)]);
        assert_eq!(shown("livemax"), [one(4.0), one(1.0)]);
        assert_eq!(shown("min"), [one(1.0), one(1.0)]);
        assert_eq!(shown("livemin"), [one(1.0), one(1.0)]);
        assert_eq!(shown("mostrecent"), [one(2.0), one(2.0)]);
        assert_eq!(shown("livemostrecent"), [one(1.0), one(1.0)]);
        let each = |all: &[(u32, f64)]| -> Vec<_> {
            all.iter().map(|&(pid, it)| (Some(pid), it)).collect()
        };
        assert_eq!(shown("liveall"), [each(&[(10, 4.0), (20, 1.0)]), each(&[(20, 1.0)])]);
        let [first, second]: [Vec<_>; 2] = shown("all");
        assert_eq!((first.len(), second.len()), (3, 3));
        assert_eq!(LevelMode::named("live"), None);
        assert_eq!(LevelMode::named("livelive"), None);
    }

    #[test]
    fn a_process_that_was_started_again_is_another_one() {
        let sum = LevelMode::named("sum").expect("a mode");
        let mut levels = Levels::default();
        for start in 0..200 {
            levels.set((1, start), start, 1.0);
            levels.set((1, start), start, 2.0);
            levels.end((1, start), sum);
        }
        assert_eq!((levels.shown(sum), levels.0.len()), (vec![(None, 400.0)], 1));
    }

    #[test]
    fn of_ended_processes_the_last_are_shown() {
        let all = LevelMode::named("all").expect("a mode");
        let mut levels = Levels::default();
        for start in 0..200 {
            levels.set((1, start), start, 1.0);
            levels.end((1, start), all);
        }
        let shown = levels.shown(all);
        assert_eq!((shown.len(), shown[0].0), (ENDED_MAX, Some(200 - ENDED_MAX as u32)));
    }
}
