//! Judges the policy on traffic as it is: `cargo run --release -p jitney-lab --example traffic --
//! [open|closed|mixed|all] [--requests N] [--seed N] [--only TEXT] [--cells] [--save FILE]
//! [--against FILE]`.
//!
//! Open cells show mean and p99 latency over those of dispatching at once, closed ones answers per
//! second over those of dispatching at once, always on the same arrivals. A line is the worst of a
//! kind of traffic; `--cells` shows all. `--save` writes the figures of every cell, and `--against`
//! compares with such a file of another build. `--only` takes cells whose name contains the text.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example that prints")]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use jitney_lab::contender::Contender;
use jitney_lab::tables::traffic::{Judged, TrafficCell, TrafficFigures, closed, mixed, open};

/// What may be lost against dispatching at once.
const MEAN_MAX: f64 = 1.02;
const P99_MAX: f64 = 1.04;

/// The arguments.
struct Asked {
    which: String,
    only: Option<String>,
    save: Option<String>,
    against: Option<String>,
    all: bool,
    requests: usize,
    seed: u64,
}

fn asked() -> Asked {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut value = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.remove(at);
        Some(args.remove(at))
    };
    let [only, save, against] = ["--only", "--save", "--against"].map(&mut value);
    let number =
        |text: Option<String>, other| text.map_or(other, |it| it.parse().expect("a number"));
    let (requests, seed) = (number(value("--requests"), 20_000), number(value("--seed"), 42));
    let all = args.iter().any(|arg| arg == "--cells");
    args.retain(|arg| arg != "--cells");
    let which = args.first().map_or("all", String::as_str).to_owned();
    Asked { which, only, save, against, all, requests: requests as usize, seed }
}

/// A cell under both policies.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    ours: TrafficFigures,
    eager: TrafficFigures,
}

/// Plays all cells on two threads.
fn play(cells: &[TrafficCell], requests: usize, seed: u64) -> Vec<Pair> {
    let (next, pairs) = (AtomicUsize::new(0), Mutex::new(vec![Pair::default(); cells.len()]));
    let eager: Mutex<HashMap<&str, TrafficFigures>> = Mutex::default();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(at) else { return };
            let alike = cell.alike.as_deref();
            let known = alike.and_then(|it| eager.lock().expect("no panic").get(it).copied());
            let at_once = known.unwrap_or_else(|| cell.play(&Contender::Eager, requests, seed));
            alike.map(|it| eager.lock().expect("no panic").insert(it, at_once));
            let ours = cell.play(&Contender::Adaptive, requests, seed);
            pairs.lock().expect("no panic")[at] = Pair { ours, eager: at_once };
            if at.is_multiple_of(50) {
                eprint!("\r{at} of {} cells ", cells.len());
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(work)));
    eprintln!("\r{0} of {0} cells ", cells.len());
    pairs.into_inner().expect("no panic")
}

impl Pair {
    fn mean(&self) -> f64 {
        self.ours.mean / self.eager.mean
    }

    fn p99(&self) -> f64 {
        self.ours.p99 / self.eager.p99
    }

    fn closed(&self) -> f64 {
        self.ours.closed / self.eager.closed
    }
}

/// The least or the most of a ratio, and where it is.
fn extreme(
    found: &[(&TrafficCell, Pair)],
    most: bool,
    ratio: impl Fn(&Pair) -> f64,
) -> (f64, String) {
    let by = |it: &&(&TrafficCell, Pair)| if most { ratio(&it.1) } else { -ratio(&it.1) };
    let worst = found.iter().max_by(|a, b| by(a).total_cmp(&by(b))).expect("a kind has cells");
    (ratio(&worst.1), worst.0.place.clone())
}

fn print_kind(kind: &str, found: &[(&TrafficCell, Pair)]) {
    let judged = found[0].0.judged;
    print!("  {kind:28}");
    if judged != Judged::Closed {
        let ((mean, at), (p99, then)) =
            (extreme(found, true, Pair::mean), extreme(found, true, Pair::p99));
        let (low, _) = extreme(found, false, Pair::mean);
        let failed = found.iter().filter(|it| it.1.mean() > MEAN_MAX || it.1.p99() > P99_MAX);
        let share = format!("{} of {}", failed.count(), found.len());
        print!("  mean {low:.3} to {mean:.3} ({at:16})  p99 to {p99:.3} ({then:16})  over {share}");
    }
    if judged != Judged::Open {
        let ((least, at), (most, then)) =
            (extreme(found, false, Pair::closed), extreme(found, true, Pair::closed));
        print!("  answers {least:.3} ({at:14}) to {most:.3} ({then:14})");
    }
    println!();
}

fn print_cell(cell: &TrafficCell, pair: &Pair) {
    let Pair { ours, eager } = pair;
    println!(
        "    {:48} mean {:.2}/{:.2} {:.3}  p99 {:.2}/{:.2} {:.3}  answers {:.0}/{:.0} {:.3}  batch {:.1}/{:.1}",
        cell.name(),
        ours.mean,
        eager.mean,
        pair.mean(),
        ours.p99,
        eager.p99,
        pair.p99(),
        ours.closed,
        eager.closed,
        pair.closed(),
        ours.batch,
        eager.batch,
    );
}

fn lines(cells: &[TrafficCell], pairs: &[Pair]) -> String {
    let mut text = String::new();
    for (cell, Pair { ours, .. }) in cells.iter().zip(pairs) {
        let name = format!("{}|{}", cell.kind, cell.place);
        _ = writeln!(text, "{name}\t{}\t{}\t{}", ours.mean, ours.p99, ours.closed);
    }
    text
}

/// The figures over those of another build, the worst and the best of each group.
fn compare(cells: &[TrafficCell], pairs: &[Pair], other: &str) {
    let saved: HashMap<&str, Vec<f64>> = other
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, rest)| (name, rest.split('\t').filter_map(|it| it.parse().ok()).collect()))
        .collect();
    for (judged, column, name) in [
        (Judged::Open, 0, "mean"),
        (Judged::Open, 1, "p99"),
        (Judged::Closed, 2, "answers"),
        (Judged::Mixed, 0, "mean"),
        (Judged::Mixed, 1, "p99"),
        (Judged::Mixed, 2, "answers"),
    ] {
        let mut all: Vec<(f64, String)> = Vec::new();
        for (cell, Pair { ours, .. }) in cells.iter().zip(pairs).filter(|it| it.0.judged == judged)
        {
            let Some(then) = saved.get(&*format!("{}|{}", cell.kind, cell.place)) else { continue };
            let now = [ours.mean, ours.p99, ours.closed][column];
            all.push((now / then[column], cell.name()));
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let Some(last) = all.len().checked_sub(1) else { continue };
        println!("{judged:?} {name} over that of the other build: median {:.3}", all[last / 2].0);
        for (ratio, cell) in all.iter().take(12).chain(all.iter().skip(last.max(24) - 11)) {
            println!("  {ratio:.3} {cell}");
        }
    }
}

fn main() {
    let asked = asked();
    let mut cells = Vec::new();
    for (name, group) in
        [("open", open as fn() -> Vec<TrafficCell>), ("mixed", mixed), ("closed", closed)]
    {
        if asked.which == name || asked.which == "all" {
            cells.extend(group());
        }
    }
    if let Some(only) = &asked.only {
        cells.retain(|cell| cell.name().contains(only));
    }
    let pairs = play(&cells, asked.requests, asked.seed);
    let mut kinds: Vec<(&str, Vec<(&TrafficCell, Pair)>)> = Vec::new();
    for (cell, pair) in cells.iter().zip(&pairs) {
        match kinds.last_mut().filter(|it| it.0 == cell.kind) {
            Some((_, found)) => found.push((cell, *pair)),
            None => kinds.push((&cell.kind, vec![(cell, *pair)])),
        }
    }
    println!("Over dispatching at once, {} requests, seed {}", asked.requests, asked.seed);
    for (kind, found) in &kinds {
        print_kind(kind, found);
        if asked.all {
            found.iter().for_each(|(cell, pair)| print_cell(cell, pair));
        }
    }
    if let Some(path) = asked.save {
        std::fs::write(&path, lines(&cells, &pairs)).expect("it can be written");
    }
    if let Some(path) = asked.against {
        compare(&cells, &pairs, &std::fs::read_to_string(&path).expect("it can be read"));
    }
}
