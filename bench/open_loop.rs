//! A load that does not wait for answers: requests come at a rate, whatever the server does.
//!
//! Beside `wrk`, whose connections wait. Raw HTTP/1.1, a thread and a connection per request under
//! way, no crates; latency counts from the moment at which the request was due. `bench/adaptive.py`
//! compiles and runs it.
//!
//! ```text
//! open_loop HOST:PORT PATH OBJECTIVE_MS SEED RATExSECONDS...    one JSON line per phase
//! ```
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Requests under way at a time; those beyond are not sent and count as lost.
const CONNECTIONS_MAX: usize = 2000;

/// What became of one request.
struct Ended {
    phase: usize,
    /// When it was due, from the start of its phase.
    due: Duration,
    took: Duration,
    status: u16,
    explained: bool,
}

/// What all connections share.
struct Bench {
    address: String,
    request: Vec<u8>,
    ended: Mutex<Vec<Ended>>,
    idle: Mutex<Vec<Sender<Job>>>,
}

#[derive(Clone, Copy)]
struct Job {
    phase: usize,
    due: Instant,
    since: Duration,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, objective, seed, phases @ ..] = words.as_slice() else {
        println!("open_loop HOST:PORT PATH OBJECTIVE_MS SEED RATExSECONDS...");
        return;
    };
    let phases: Vec<(f64, f64)> = phases.iter().filter_map(|text| phase(text)).collect();
    let objective = Duration::from_millis(objective.parse().unwrap_or(50));
    let head = format!("POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: 4\r\n\r\nbody");
    let bench = Arc::new(Bench {
        address: address.clone(),
        request: head.into_bytes(),
        ended: Mutex::default(),
        idle: Mutex::default(),
    });
    run(&bench, &phases, seed.parse().unwrap_or(1));
    let ended = bench.ended.lock().expect("no thread panicked");
    for (number, phase) in phases.iter().enumerate() {
        report(&ended, number, *phase, objective);
    }
}

fn phase(text: &str) -> Option<(f64, f64)> {
    let (rate, seconds) = text.split_once('x')?;
    Some((rate.parse().ok()?, seconds.parse().ok()?))
}

fn run(bench: &Arc<Bench>, phases: &[(f64, f64)], seed: u64) {
    let mut dice = Dice(seed.max(1));
    let mut connections = 0;
    let mut start = Instant::now() + Duration::from_millis(10);
    for (phase, (rate, seconds)) in phases.iter().enumerate() {
        let mut since = 0.0;
        while since < *seconds {
            let job = Job {
                phase,
                due: start + Duration::from_secs_f64(since),
                since: Duration::from_secs_f64(since),
            };
            thread::sleep(job.due.saturating_duration_since(Instant::now()));
            send(bench, job, &mut connections);
            since += -(1.0 - dice.next()).ln() / rate;
        }
        start += Duration::from_secs_f64(*seconds);
    }
    // The stragglers have a second; whoever is not back then is not counted.
    thread::sleep(start.saturating_duration_since(Instant::now()) + Duration::from_secs(1));
}

/// Chance that is the same every time: xorshift.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn send(bench: &Arc<Bench>, job: Job, connections: &mut usize) {
    let idle = bench.idle.lock().expect("no thread panicked").pop();
    if let Some(connection) = idle {
        if connection.send(job).is_ok() {
            return;
        }
    }
    if *connections == CONNECTIONS_MAX {
        return bench.end(job, 0, false);
    }
    *connections += 1;
    let (jobs, inbox) = channel();
    let _sent = jobs.send(job);
    let bench = Arc::clone(bench);
    let small = thread::Builder::new().stack_size(64 * 1024);
    small.spawn(move || connection(&bench, &jobs, &inbox)).expect("a thread");
}

fn connection(bench: &Bench, jobs: &Sender<Job>, inbox: &Receiver<Job>) {
    let mut stream = TcpStream::connect(&bench.address).ok();
    let mut buffer = Vec::with_capacity(4096);
    while let Ok(job) = inbox.recv() {
        let asked = stream.as_mut().and_then(|stream| ask(stream, &bench.request, &mut buffer));
        let (status, explained) = asked.unwrap_or((0, false));
        bench.end(job, status, explained);
        if status == 0 {
            stream = TcpStream::connect(&bench.address).ok();
        }
        bench.idle.lock().expect("no thread panicked").push(jobs.clone());
    }
}

/// Status, and whether a refusal said why and when to come again.
fn ask(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> Option<(u16, bool)> {
    stream.write_all(request).ok()?;
    buffer.clear();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece).ok()?;
        if read == 0 {
            return None;
        }
        buffer.extend_from_slice(&piece[..read]);
        let text = std::str::from_utf8(buffer).ok()?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let field = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
        };
        let length: usize = field("content-length")?.parse().ok()?;
        if body.len() < length {
            continue;
        }
        let status = head.get(9..12)?.parse().ok()?;
        return Some((status, field("retry-after").is_some() && body.contains("[reason: ")));
    }
}

impl Bench {
    fn end(&self, job: Job, status: u16, explained: bool) {
        let took = job.due.elapsed();
        let (phase, due) = (job.phase, job.since);
        let ended = Ended { phase, due, took, status, explained };
        self.ended.lock().expect("no thread panicked").push(ended);
    }
}

fn report(ended: &[Ended], number: usize, (rate, seconds): (f64, f64), objective: Duration) {
    let all: Vec<&Ended> = ended.iter().filter(|it| it.phase == number).collect();
    let good = |it: &&&Ended| it.status == 200 && it.took <= objective;
    let refused: Vec<_> = all.iter().filter(|it| it.status == 503 || it.status == 429).collect();
    let refusals: Vec<f64> = refused.iter().map(|it| it.took.as_secs_f64() * 1e3).collect();
    let answers: Vec<f64> =
        all.iter().filter(|it| it.status == 200).map(|it| it.took.as_secs_f64() * 1e3).collect();
    let last_bad =
        all.iter().filter(|it| !good(it)).map(|it| it.due.as_secs_f64()).fold(0.0, f64::max);
    println!(
        "{{\"rate\": {rate}, \"sent\": {}, \"good_per_s\": {:.1}, \"answered\": {}, \"refused\": {}, \
         \"explained\": {}, \"lost\": {}, \"expired\": {}, \"refusal_p50_ms\": {:.3}, \"answer_p50_ms\": {:.3}, \
         \"answer_p99_ms\": {:.3}, \"last_bad_s\": {last_bad:.3}}}",
        all.len(),
        all.iter().filter(good).count() as f64 / seconds,
        answers.len(),
        refused.len(),
        refused.iter().filter(|it| it.explained).count(),
        all.iter().filter(|it| it.status == 0).count(),
        all.iter().filter(|it| it.status == 408).count(),
        quantile(refusals, 0.5),
        quantile(answers.clone(), 0.5),
        quantile(answers, 0.99),
    );
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(0.0)
}
