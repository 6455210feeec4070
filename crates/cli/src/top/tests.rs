//! The screen in a terminal that is only a buffer.

use jitney_telemetry::overview::OverviewDocument;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::choice::{SortKey, TopChoice};
use super::palette::TopPalette;
use super::view::TopView;
use super::watched::{RemoteBatching, RemoteDecision, WatchedServer};
use super::*;

fn model(name: &str, state: &str) -> serde_json::Value {
    json!({
        "name": name, "version": "1.0", "isDefault": true, "kind": "python", "state": state,
        "stateText": "1 of 2 workers ready", "policy": "adaptive", "maxBatchSize": 32, "maxLatencyMs": 50.0,
        "workersMin": 2, "workersMax": 2, "restarts": 3, "exits": {"crashed": 3},
        "workers": [{"id": 9000, "pid": 42, "state": "ready", "memoryBytes": 1 << 30}],
        "waiting": 7, "queueMax": 100, "running": 4,
        "totals": {"requests": 60, "answered": 40, "rejected": 10, "batches": 10, "items": 40, "late": 5},
        "rejections": {"queue_full": 10, "deadline": 0}, "dispatches": {"full": 2, "idle": 8},
        "batchSizes": [{"size": 4, "batches": 8}, {"size": 32, "batches": 2}],
    })
}

fn overview(time: u64, total: u64) -> OverviewDocument {
    let traffic = |total: u64| {
        json!({
            "requests": total, "answered": total, "late": 0, "rejected": total / 10,
            "batches": total / 4, "items": total, "p50Ms": 4.2, "p99Ms": 17.5,
        })
    };
    let mut failed = model("bert", "failed");
    failed["lastError"] = json!("Traceback:\nModuleNotFoundError: No module named 'torch'");
    let document = json!({
        "server": {
            "version": "0.1.0", "state": "degraded", "stateText": "bert has no worker", "uptimeSeconds": 3700,
            "memoryBytes": 50 << 20, "connections": 12,
        },
        "machine": {"cpuPercent": 37.4, "memoryUsedBytes": 2_u64 << 30, "memoryTotalBytes": 8_u64 << 30},
        "gpus": [{"id": 0, "utilizationPercent": 55.0, "memoryUsedBytes": 1_u64 << 30, "memoryTotalBytes": 4_u64 << 30}],
        "models": [model("resnet", "ready"), failed],
        "sample": {"time": time, "models": {"resnet/1.0": traffic(total), "bert/1.0": traffic(0)}},
    });
    serde_json::from_value(document).expect("a document")
}

fn watched() -> WatchedServer {
    let mut watched = WatchedServer::new("http://127.0.0.1:8081".to_owned());
    watched.take_overview(overview(1000, 0));
    watched.take_overview(overview(3000, 100));
    watched.take_overview(overview(5000, 400));
    let decision = RemoteDecision { ago_ms: 12.0, words: "sent 4 items: a worker was free".into() };
    let batching = RemoteBatching { how: "at most 32 items".into(), decisions: vec![decision] };
    watched.why = Some(("resnet/1.0".to_owned(), batching));
    watched
}

fn screen(watched: &WatchedServer, choice: &TopChoice, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a buffer");
    let view = TopView { watched, choice, palette: TopPalette::Plain, interactive: true };
    terminal.draw(|frame| screen::draw(&view, frame.area(), frame.buffer_mut())).expect("draws");
    terminal.backend().to_string()
}

fn press(choice: &mut TopChoice, watched: &WatchedServer, keys: &[KeyCode]) {
    for key in keys {
        choice.press(KeyEvent::new(*key, KeyModifiers::NONE), watched);
    }
}

fn assert_shows(screen: &str, expected: &[&str]) {
    for text in expected {
        assert!(screen.contains(text), "{text:?} is missing in\n{screen}");
    }
}

#[test]
fn the_screen_shows_the_server_its_models_and_the_chosen_one() {
    let (watched, mut choice) = (watched(), TopChoice::default());
    press(&mut choice, &watched, &[KeyCode::Down]);
    let shown = screen(&watched, &choice, 130, 40);
    assert_shows(
        &shown,
        &[
            "Jitney 0.1.0 at http://127.0.0.1:8081: degraded, up 1 h 1 min",
            "CPU 37%   memory 2.0 GiB of 8.0 GiB",
            "GPU 0: 55%, memory 1.0 GiB of 4.0 GiB",
            "bert has no worker",
            "resnet/1.0",
            // 400 requests in 4 s, all in time; a tenth is also rejected.
            "100     100   10.0  4.20 ms  17.5 ms     7/100     4  4.00     1/2  1.0 GiB        3",
            "resnet/1.0 (default) ready, adaptive, at most 32 items, target 50.0 ms; 100 requests/s now, 150 at most",
            "     4 ######################## 8",
            "    32 ###### 2",
            "sent because idle 8, full 2",
            "rejected because queue_full 10",
            "workers: 1 of 2 ready, 3 restarts, 0 failed loads (exits: crashed 3)",
            "9000 ready  pid 42  1.0 GiB",
            "12 ms ago: sent 4 items: a worker was free",
            "q end",
        ],
    );
}

#[test]
fn a_failed_model_shows_its_last_error() {
    let (watched, choice) = (watched(), TopChoice::default());
    let shown = screen(&watched, &choice, 130, 40);
    assert_shows(&shown, &["last error: ModuleNotFoundError: No module named 'torch'"]);
}

#[test]
fn a_small_screen_has_fewer_columns_and_any_size_is_drawn() {
    let (watched, mut choice) = (watched(), TopChoice::default());
    let shown = screen(&watched, &choice, 80, 24);
    assert_shows(&shown, &["REQ/S", "REJ/S", "P99", "QUEUE", "WORKERS", "last error"]);
    assert!(!shown.contains("RESTARTS"), "{shown}");
    for keys in [&[][..], &[KeyCode::Enter][..], &[KeyCode::Char('?')][..]] {
        press(&mut choice, &watched, keys);
        for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 100), (80, 5)] {
            screen(&watched, &choice, width, height);
            screen(&WatchedServer::default(), &choice, width, height);
        }
    }
}

#[test]
fn keys_choose_sort_pause_and_end() {
    let (mut watched, mut choice) = (watched(), TopChoice::default());
    assert_eq!(choice.chosen(&watched).as_deref(), Some("bert/1.0"));
    press(&mut choice, &watched, &[KeyCode::Char('j'), KeyCode::Down]);
    assert_eq!(choice.chosen(&watched).as_deref(), Some("resnet/1.0"), "the last one stays");
    press(&mut choice, &watched, &[KeyCode::Char('k'), KeyCode::Up]);
    assert_eq!(choice.chosen(&watched).as_deref(), Some("bert/1.0"));
    press(&mut choice, &watched, &[KeyCode::Char('s')]);
    assert_eq!(choice.sort, SortKey::Requests);
    let order: Vec<_> = choice.sorted(&watched).iter().map(|model| model.key()).collect();
    assert_eq!(order, ["resnet/1.0", "bert/1.0"]);
    assert_eq!(
        choice.chosen(&watched).as_deref(),
        Some("bert/1.0"),
        "the choice follows the model"
    );
    press(&mut choice, &watched, &[KeyCode::Char('p'), KeyCode::Char('?')]);
    assert_shows(&screen(&watched, &choice, 130, 40), &["PAUSED", "Help", "p, space"]);
    press(&mut choice, &watched, &[KeyCode::Esc]);
    assert!(!choice.help && !choice.ended);
    press(&mut choice, &watched, &[KeyCode::Char('q')]);
    assert!(choice.ended);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let mut other = TopChoice::default();
    other.press(control_c, &watched);
    assert!(other.ended);
    watched.lost = Some("connection refused".to_owned());
    assert_shows(
        &screen(&watched, &choice, 130, 40),
        &["no connection: connection refused; trying again"],
    );
}

#[test]
fn a_frame_without_a_terminal_is_plain_text() {
    let watched = watched();
    let choice = TopChoice::default();
    let palette = TopPalette::Plain;
    let view = TopView { watched: &watched, choice: &choice, palette, interactive: false };
    let rows = frame(&view, WIDTH);
    assert!(rows.iter().all(|row| !row.contains('\x1b') && row.trim_end() == row));
    assert!(rows[0].starts_with("Jitney 0.1.0 at ") && !rows.last().expect("rows").is_empty());
    assert!(!rows.iter().any(|row| row.contains("q end")));
}
