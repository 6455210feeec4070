//! Incidents with virtual traffic, and what the first line must say about each.

use super::drill::{Drill, Second, WELL, model};
use super::limit::Limit;
use crate::model_facts::ModelLink;
use crate::overview::document::GpuOverview;
use crate::overview::problem::ProblemTone;

#[test]
fn no_problem_is_found_while_all_is_well() {
    let mut drill = Drill::one();
    drill.run(600, &[WELL]);
    assert_eq!(drill.problems(), []);
}

#[test]
fn overload_is_the_traffic_and_more_workers_help_where_there_is_room() {
    let mut drill = Drill::one();
    drill.run(120, &[WELL]);
    let overload =
        Second { answered: 90, rejected: ("queue_full", 60), size: 8, cpu: (98.0, 1.0), ..WELL };
    drill.run(60, &[Second { compute_ms: 40.0, ..overload }]);
    let (tone, what, advice) = drill.first();
    assert_eq!(tone, ProblemTone::Bad);
    assert_eq!(
        what,
        "m 1.0: rejecting 40 % of requests (60 per second): the queue is full: the offered load is more \
         than the workers can serve; 150 requests per second come, 30 did minutes ago"
    );
    let add = "Add workers, since the processors are 20 % busy, or send less; the rest is answered in time.";
    assert_eq!(advice, add);
    assert!(drill.problems()[0].more_workers_help);
    drill.machine().cpu_percent = Some(97.0);
    drill.document.server.cpu_percent = Some(800.0);
    let busy =
        "The processors are 97 % busy: more workers would not help. Send less, or add a machine.";
    assert_eq!(drill.first().2, busy);
    assert!(!drill.problems()[0].more_workers_help);
}

#[test]
fn a_slow_model_is_named_and_not_the_traffic() {
    let mut drill = Drill::one();
    drill.run(120, &[WELL]);
    // Others use the machine, as in the trial that this drill comes from.
    drill.machine().cpu_percent = Some(100.0);
    let slow =
        Second { answered: 3, late: 1, rejected: ("queue_full", 27), compute_ms: 400.0, ..WELL };
    drill.run(40, &[Second { cpu: (0.5, 2.0), ..slow }]);
    let (tone, what, advice) = drill.first();
    assert_eq!(tone, ProblemTone::Bad);
    assert_eq!(
        what,
        "m 1.0: rejecting 90 % of requests (27 per second): the queue is full, since the model has become \
         slower: batches of 1 take 400 ms, 10 ms 56 s ago"
    );
    assert_eq!(
        advice,
        "Its workers use 0.5 % of a processor: the model waits for something else, such as a file, a \
         network or a lock. More workers answer more until that is mended."
    );
    assert_eq!(drill.problems().len(), 1, "it is one incident");
}

#[test]
fn a_model_that_computes_more_is_told_before_requests_suffer_and_when_they_are_late() {
    let mut drill = Drill::one();
    drill.run(120, &[WELL]);
    let slow = Second { compute_ms: 25.0, cpu: (99.0, 1.0), ..WELL };
    drill.run(30, &[slow]);
    let (tone, what, advice) = drill.first();
    assert_eq!(tone, ProblemTone::Warn);
    assert_eq!(what, "m 1.0: the model has become slower: batches of 1 take 25 ms, 10 ms 46 s ago");
    assert!(
        advice.starts_with("Its workers use 99 % of a processor each: the model computes more")
    );
    drill.run(30, &[Second { late: 15, ..slow }]);
    let late =
        "m 1.0: 50 % of the answers come later than 50 ms, since the model has become slower";
    assert!(drill.first().1.starts_with(late), "{:?}", drill.first());
}

#[test]
fn a_slow_part_is_named_by_the_model_that_waits_for_it() {
    let mut caller = model("app", "1.0");
    caller.depends_on = vec![ModelLink { model: "part".to_owned(), version: None }];
    let mut drill = Drill::new(vec![caller, model("part", "1.0")]);
    drill.run(120, &[Second { compute_ms: 14.0, ..WELL }, WELL]);
    let waits = Second { answered: 5, rejected: ("hopeless", 25), compute_ms: 404.0, ..WELL };
    let slow = Second { answered: 5, compute_ms: 400.0, ..WELL };
    drill.run(40, &[Second { cpu: (1.0, 0.0), ..waits }, Second { cpu: (2.0, 0.0), ..slow }]);
    let (_, what, advice) = drill.first();
    assert_eq!(
        what,
        "app 1.0: rejecting 83 % of requests (25 per second): they could not be answered in time, since its \
         part part 1.0 has become slower: there batches of 1 take 400 ms, 10 ms 56 s ago"
    );
    assert_eq!(advice, "Begin with part 1.0: this model only waits for it.");
}

#[test]
fn a_crash_loop_is_told_with_the_worker_and_how_it_ended() {
    let mut drill = Drill::one();
    drill.run(300, &[WELL]);
    for restarts in 1..=7 {
        drill.document.models[0].restarts = restarts;
        drill.document.models[0].workers[0].restarts = restarts as u32;
        drill.run(40, &[WELL]);
    }
    drill.document.models[0].last_exit = Some("killed by signal 9 (out of memory?)".to_owned());
    let (tone, what, advice) = drill.first();
    assert_eq!(tone, ProblemTone::Bad);
    let expected = "Worker 9000 of m 1.0 has been restarted 7 times in 5 minutes: killed by signal 9 (out of memory?)";
    assert_eq!(what, expected);
    assert!(advice.starts_with("It exits again and again."), "{advice}");
    assert_eq!(drill.problems()[0].word, "restarting");
}

#[test]
fn a_crash_loop_is_one_incident_with_what_requests_suffer() {
    let mut drill = Drill::one();
    drill.run(60, &[WELL]);
    // As on a server whose model ends two seconds after each start: a worker loads, answers, and is lost.
    drill.document.models[0].last_exit = Some("exit status 3".to_owned());
    let lost = Second { answered: 12, late: 3, rejected: ("no_worker", 4), failed: 4, ..WELL };
    for restarts in 1..=10 {
        let model = &mut drill.document.models[0];
        (model.restarts, model.workers[0].restarts) = (restarts, restarts as u32);
        model.state = if restarts % 2 == 0 { "loading" } else { "ready" }.to_owned();
        drill.run(4, &[lost]);
        let problems = drill.problems();
        assert!(restarts < 4 || problems.len() == 1, "after {restarts}: {problems:?}");
    }
    let (tone, what, advice) = drill.first();
    let expected = "Worker 9000 of m 1.0 has been restarted 10 times in 98 s: exit status 3; of its requests \
                    20 % are rejected, 20 % fail, 25 % are answered late";
    assert_eq!((tone, what.as_str()), (ProblemTone::Bad, expected));
    assert!(advice.starts_with("It exits again and again."), "{advice}");
    drill.run(32, &[Second { rejected: ("poison", 4), ..lost }]);
    assert_eq!(drill.first().2, "Some requests make workers exit. Their ids are in the log.");
}

#[test]
fn all_restarts_of_a_version_that_has_just_come_are_told() {
    let mut drill = Drill::new(vec![]);
    drill.run(20, &[]);
    let mut young = model("m", "1.0");
    (young.restarts, young.last_exit) = (2, Some("exit status 3".to_owned()));
    drill.document.models.push(young);
    drill.run(4, &[WELL]);
    let (tone, what, _) = drill.first();
    let expected = "Workers of m 1.0 have been restarted twice in 2 s: exit status 3";
    assert_eq!((tone, what.as_str()), (ProblemTone::Warn, expected));
}

#[test]
fn a_leak_is_told_with_its_speed_and_the_time_that_is_left() {
    let mut drill = Drill::one();
    for second in 0..60 {
        drill.run(2, &[Second { memory: 300_000_000 + second * 400_000, ..WELL }]);
    }
    let (tone, what, advice) = drill.first();
    assert_eq!(tone, ProblemTone::Warn);
    let expected = "Worker 9000 of m 1.0: memory grows by 12 MB a minute, now 324 MB: a leak?";
    assert_eq!(what, expected);
    assert!(advice.starts_with("Scaling down and up again frees it for now"), "{advice}");
    drill.machine().memory_used_bytes = (64 << 30) - 600_000_000;
    let leak = drill.problems().into_iter().find(|problem| problem.word == "memory grows");
    let advice = leak.map(|leak| (leak.tone, leak.advice)).unwrap();
    assert_eq!(advice.0, ProblemTone::Bad);
    assert!(advice.1.starts_with("At this speed the machine's memory is full in 50 min."));
}

#[test]
fn a_bad_deploy_is_told_with_its_cause_and_the_version_that_is_ready() {
    let mut old = model("m", "1.0");
    old.is_default = false;
    let mut drill = Drill::new(vec![old]);
    drill.run(60, &[WELL]);
    let mut broken = model("m", "2.0");
    broken.state = "failed".to_owned();
    let traceback = "Traceback (most recent call last):\n  File \"m.py\", line 1\nModuleNotFoundError: No module named 'x'\n";
    broken.last_error = Some(traceback.to_owned());
    drill.document.models.push(broken);
    let none = Second { answered: 0, ..WELL };
    drill.run(4, &[WELL, none]);
    let roll_back = "Version 1.0 is ready: make it the default for now, then correct this one.";
    let (tone, what, advice) = drill.first();
    assert_eq!(tone, ProblemTone::Bad);
    assert_eq!(what, "m 2.0: could not load: ModuleNotFoundError: No module named 'x'");
    assert_eq!(advice, roll_back);
    assert_eq!(drill.problems()[0].roll_back_to.as_deref(), Some("1.0"));
    drill.document.models[1].state = "ready".to_owned();
    drill.run(30, &[none, Second { failed: 20, ..WELL }]);
    let (_, what, advice) = drill.first();
    assert!(what.starts_with("m 2.0: 40 % of requests fail. Last error: ModuleNotFound"), "{what}");
    assert_eq!(advice, roll_back);
}

#[test]
fn a_version_that_never_loaded_is_one_incident_however_often_it_is_tried() {
    let (mut drill, none) = (Drill::one(), Second { answered: 0, ..WELL });
    drill.document.models[0].state = "failed".to_owned();
    drill.run(4, &[none]);
    drill.document.models[0].restarts = 5;
    drill.run(4, &[none]);
    assert_eq!(drill.problems().len(), 1);
    drill.document.models[0].last_exit = Some("exit status 3".to_owned());
    assert_eq!(drill.problems().len(), 1, "whether it ran before or not");
}

#[test]
fn a_new_version_that_is_slower_is_compared_with_the_old_one() {
    let mut old = model("m", "1.0");
    old.is_default = false;
    let mut drill = Drill::new(vec![old]);
    drill.run(120, &[WELL]);
    drill.document.models.push(model("m", "2.0"));
    let none = Second { answered: 0, ..WELL };
    drill.run(16, &[none, Second { compute_ms: 400.0, ..WELL }]);
    let first = &drill.problems()[0];
    let expected =
        "m 2.0: the model has become slower: batches of 1 take 400 ms, 10 ms in version 1.0";
    assert_eq!((first.what.as_str(), first.roll_back_to.as_deref()), (expected, Some("1.0")));
}

#[test]
fn a_full_disk_is_the_first_line_and_the_advice_for_those_that_fail() {
    let mut drill = Drill::one();
    drill.run(60, &[WELL]);
    drill.document.models[0].last_error =
        Some("OSError: [Errno 28] No space left on device: '/tmp/x'".to_owned());
    drill.run(30, &[Second { failed: 30, ..WELL }]);
    let advice = "The disk is full: remove files, or add room.";
    assert_eq!(drill.first().2, advice, "another disk than the one that is watched");
    drill.machine().disk_free_bytes = Some(12_000_000);
    let (tone, what, _) = drill.first();
    assert_eq!(tone, ProblemTone::Bad);
    assert_eq!(what, "The disk of the machine is full: 12 MB of 107 GB are left.");
}

#[test]
fn a_noisy_neighbour_is_named() {
    let mut drill = Drill::one();
    drill.run(120, &[WELL]);
    drill.machine().cpu_percent = Some(99.5);
    let starved = Second { late: 20, compute_ms: 60.0, cpu: (30.0, 65.0), ..WELL };
    drill.run(40, &[starved]);
    let (_, what, advice) = drill.first();
    assert_eq!(
        what,
        "m 1.0: 67 % of the answers come later than 50 ms, since the model has become slower: batches of 1 \
         take 60 ms, 10 ms 56 s ago; other programs use the processors"
    );
    let expected = "The processors are 99.5 % busy, and this server with its workers uses 3 % of them: end the other programs, or move them.";
    assert_eq!(advice, expected);
    assert!(!drill.problems()[0].more_workers_help);
}

#[test]
fn a_quiet_model_on_a_full_machine_waits_for_processors_and_not_for_something_else() {
    // The figures of a server on two processors. Eight workers of one model compute without an end, and a worker of
    // the other one is asked once a second: it waits for a processor for 20 % of the time, which is nearly all of
    // the time in which it has a batch.
    let mut loud = model("loud", "1.0");
    loud.workers = vec![loud.workers[0].clone(); 8];
    let mut drill = Drill::new(vec![model("quiet", "1.0"), loud]);
    drill.machine().processors = 2;
    let before = Second { answered: 1, compute_ms: 54.0, cpu: (1.0, 4.7), ..WELL };
    drill.run(120, &[before, Second { answered: 0, cpu: (0.0, 0.0), ..WELL }]);
    drill.machine().cpu_percent = Some(100.0);
    let computes = Second { answered: 8, compute_ms: 900.0, cpu: (23.0, 75.0), ..WELL };
    drill.run(40, &[Second { compute_ms: 216.0, cpu: (1.0, 19.9), ..before }, computes]);
    let workers = drill.document.models[1].workers.iter_mut();
    workers.for_each(|worker| worker.cpu_percent = Some(23.0));
    let problems = drill.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    let slower = "quiet 1.0: the model has become slower: batches of 1 take 216 ms, 54 ms 56 s ago";
    assert_eq!(problems[0].what, format!("{slower}; loud 1.0 uses the processors"));
    let advice = "The processors are 100 % busy, and loud 1.0 uses 92 % of them: give it fewer workers, send it \
                  less, or move it to another machine.";
    assert_eq!((problems[0].advice.as_str(), problems[0].more_workers_help), (advice, false));
    let workers = drill.document.models[1].workers.iter_mut();
    workers.for_each(|worker| worker.cpu_percent = Some(5.3));
    let (_, what, advice) = drill.first();
    assert_eq!(what, format!("{slower}; other programs use the processors"));
    let others = "The processors are 100 % busy, and this server with its workers uses 22 % of them: end the other \
                  programs, or move them.";
    assert_eq!(advice, others);
    // A model that hardly computes: most of its 55 ms are the server's waiting for a processor.
    let small = Second { answered: 7, compute_ms: 55.0, cpu: (0.0, 2.7), ..before };
    drill.run(40, &[small, computes]);
    let limit = drill.limit(0);
    assert!(matches!(limit, Limit::OtherPrograms { .. }), "{limit:?}");
    // And one that waits for 400 ms, whoever uses the machine.
    drill.run(
        40,
        &[Second { answered: 2, compute_ms: 518.0, cpu: (2.0, 18.0), ..before }, computes],
    );
    assert!(drill.first().2.contains("waits for something else"), "{:?}", drill.first());
}

#[test]
fn a_device_that_many_share_is_named() {
    let mut other = model("other", "1.0");
    let mut own = model("m", "1.0");
    (other.workers[0].gpu, own.workers[0].gpu) = (Some(0), Some(0));
    let mut drill = Drill::new(vec![own, other]);
    drill.run(120, &[WELL, Second { answered: 0, ..WELL }]);
    let gpu = GpuOverview { utilization_percent: Some(99.0), ..GpuOverview::default() };
    drill.document.gpus = vec![gpu];
    drill.run(30, &[Second { compute_ms: 30.0, ..WELL }, Second { answered: 0, ..WELL }]);
    let (_, what, advice) = drill.first();
    assert!(
        what.ends_with("batches of 1 take 30 ms, 10 ms 46 s ago; GPU 0 is 99 % busy"),
        "{what}"
    );
    assert_eq!(advice, "2 workers share this GPU: run fewer there, or move a model.");
}

#[test]
fn the_worst_comes_first_and_a_version_without_workers_says_what_to_do() {
    let mut drill = Drill::one();
    let model = &mut drill.document.models[0];
    (model.state, model.workers_min) = ("noWorkers".to_owned(), 0);
    drill.machine().memory_used_bytes = (64 << 30) - 500_000_000;
    drill.run(4, &[Second { answered: 0, ..WELL }]);
    let said: Vec<_> = drill.problems().into_iter().map(|it| (it.tone, it.what)).collect();
    let memory = "The machine's memory is 99.2 % full: 500 MB are left.".to_owned();
    let workers = "m 1.0 has no workers: every request is rejected.".to_owned();
    assert_eq!(said, [(ProblemTone::Bad, memory), (ProblemTone::Warn, workers)]);
}
