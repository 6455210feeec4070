//! A load that does not wait for answers: requests come at a rate, whatever the server does.
//!
//! Beside `wrk`, whose connections wait. One thread, raw HTTP/1.1, a connection per request under
//! way; latency counts from the moment at which the request was due. `bench/adaptive.py` runs it.
//!
//! ```text
//! open_loop HOST:PORT PATH OBJECTIVE_MS SEED RATExSECONDS...    one JSON line per phase
//! ```
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Requests under way at a time; those beyond are not sent and count as late.
const CONNECTIONS_MAX: usize = 4000;

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
    ended: RefCell<Vec<Ended>>,
    idle: RefCell<Vec<mpsc::UnboundedSender<Job>>>,
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
    let bench = Rc::new(Bench {
        address: address.clone(),
        request: head.into_bytes(),
        ended: RefCell::default(),
        idle: RefCell::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let local = tokio::task::LocalSet::new();
    let seed = seed.parse().unwrap_or(1);
    local.block_on(&runtime, run(Rc::clone(&bench), &phases, seed));
    for (number, phase) in phases.iter().enumerate() {
        report(&bench.ended.borrow(), number, *phase, objective);
    }
}

fn phase(text: &str) -> Option<(f64, f64)> {
    let (rate, seconds) = text.split_once('x')?;
    Some((rate.parse().ok()?, seconds.parse().ok()?))
}

async fn run(bench: Rc<Bench>, phases: &[(f64, f64)], seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut connections = 0;
    let mut start = Instant::now();
    for (phase, (rate, seconds)) in phases.iter().enumerate() {
        let mut since = 0.0;
        while since < *seconds {
            let due = start + Duration::from_secs_f64(since);
            sleep_until(due).await;
            let job = Job { phase, due, since: Duration::from_secs_f64(since) };
            send(&bench, job, &mut connections);
            since += -(1.0 - dice.f64()).ln() / rate;
        }
        start += Duration::from_secs_f64(*seconds);
    }
    // The stragglers have a second; whoever is not back then is lost.
    sleep_until(start + Duration::from_secs(1)).await;
}

fn send(bench: &Rc<Bench>, job: Job, connections: &mut usize) {
    let idle = bench.idle.borrow_mut().pop();
    if let Some(connection) = idle
        && connection.send(job).is_ok()
    {
        return;
    }
    if *connections == CONNECTIONS_MAX {
        return bench.end(job, 0, false);
    }
    *connections += 1;
    let (jobs, inbox) = mpsc::unbounded_channel();
    let _sent = jobs.send(job);
    tokio::task::spawn_local(connection(Rc::clone(bench), jobs, inbox));
}

async fn connection(
    bench: Rc<Bench>,
    jobs: mpsc::UnboundedSender<Job>,
    mut inbox: mpsc::UnboundedReceiver<Job>,
) {
    let mut stream = TcpStream::connect(&bench.address).await.ok();
    let mut buffer = Vec::with_capacity(4096);
    while let Some(job) = inbox.recv().await {
        let asked = match &mut stream {
            Some(stream) => ask(stream, &bench.request, &mut buffer).await,
            None => None,
        };
        let (status, explained) = asked.unwrap_or((0, false));
        bench.end(job, status, explained);
        if status == 0 {
            stream = TcpStream::connect(&bench.address).await.ok();
        }
        bench.idle.borrow_mut().push(jobs.clone());
    }
}

/// Status, and whether a refusal said why and when to come again.
async fn ask(stream: &mut TcpStream, request: &[u8], buffer: &mut Vec<u8>) -> Option<(u16, bool)> {
    stream.write_all(request).await.ok()?;
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
        let text = std::str::from_utf8(buffer).ok()?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let field = |name: &str| {
            head.lines()
                .filter_map(|line| line.split_once(": "))
                .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
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
        self.ended.borrow_mut().push(Ended { phase, due, took, status, explained });
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
