//! Requests on their way through workflows of scripted models, on a virtual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::run::run;
use super::{Dag, NodeGraph, RunError, WorkflowNode};
use crate::Rejection;
use crate::call::Output;
use crate::error::CallError;
use crate::testkit::{Act, Kit, ScriptedBatch, call, settings};

const SECOND: Duration = Duration::from_secs(1);

/// A graph and the kits of its nodes, by the letters of the edges: `ab` feeds b with the output of a.
struct Stage {
    graph: Arc<NodeGraph>,
    kits: Vec<Kit>,
}

impl Stage {
    async fn set(
        edges: &str,
        script: impl Fn(&str, &ScriptedBatch) -> Act + Send + Sync + 'static,
    ) -> Self {
        let edge =
            |edge: &str| (edge[..1].to_owned(), edge[1..].chars().map(String::from).collect());
        let dag = Dag::new(&edges.split(' ').map(edge).collect::<Vec<_>>()).unwrap();
        let script = Arc::new(script);
        let (mut nodes, mut kits) = (Vec::new(), Vec::new());
        for name in dag.nodes.clone() {
            let (script, own) = (Arc::clone(&script), name.clone());
            let mut settings = settings();
            settings.batch_size = 1;
            settings.response_timeout = 1000 * SECOND;
            let kit = Kit::serving(2, settings, move |batch| script(&own, batch)).await;
            nodes.push(WorkflowNode {
                name,
                model: Arc::clone(&kit.model),
                timeout: 10 * SECOND,
                retries: 1,
            });
            kits.push(kit);
        }
        Self { graph: Arc::new(NodeGraph { dag, nodes }), kits }
    }

    async fn ask(&self, body: &str) -> Result<String, RunError> {
        run(&self.graph, call(body)).await.map(text)
    }

    /// How often a node was asked.
    fn batches(&self, node: &str) -> usize {
        let at = self.graph.dag.nodes.iter().position(|name| name == node).unwrap();
        self.kits[at].batches().len()
    }
}

fn text(output: Output) -> String {
    String::from_utf8_lossy(&output.body).into_owned()
}

fn after(seconds: u32, act: Act) -> Act {
    Act::After(seconds * SECOND, Box::new(act))
}

#[tokio::test(start_paused = true)]
async fn a_request_runs_through_the_nodes_in_order() {
    let stage = Stage::set("ab bc", |_, _| Act::Echo).await;
    assert_eq!(stage.ask("x").await.unwrap(), "x");
    assert_eq!(["a", "b", "c"].map(|node| stage.batches(node)), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_wait_for_the_same_one_run_side_by_side() {
    let slow =
        |node: &str, _: &ScriptedBatch| if node == "d" { Act::Echo } else { after(4, Act::Echo) };
    let stage = Stage::set("abc bd cd", slow).await;
    let started = Instant::now();
    assert_eq!(stage.ask("x").await.unwrap(), "x", "the first of two parameters is echoed");
    assert!(started.elapsed() < 9 * SECOND, "{:?}", started.elapsed());
    assert_eq!(stage.batches("d"), 1, "the last node waits for both");
}

#[tokio::test(start_paused = true)]
async fn several_leaves_answer_with_an_object() {
    let stage = Stage::set("abc", |_, _| Act::Echo).await;
    assert_eq!(stage.ask("[1, 2]").await.unwrap(), r#"{"b":[1,2],"c":[1,2]}"#);
    assert_eq!(stage.ask("plain").await.unwrap(), r#"{"b":"plain","c":"plain"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_whole_before_the_next_node_sees_it() {
    let stream = |node: &str, _: &ScriptedBatch| match node {
        "a" => Act::Stream(3, SECOND, Box::new(Act::Echo)),
        _ => Act::Echo,
    };
    assert_eq!(Stage::set("ab", stream).await.ask("end").await.unwrap(), "0 1 2 end");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_fails_is_tried_again_and_then_given_up() {
    let tries = AtomicU32::new(0);
    let once = move |node: &str, _: &ScriptedBatch| {
        let fails = node == "b" && tries.fetch_add(1, Ordering::Relaxed) == 0;
        if fails { Act::Raise } else { Act::Echo }
    };
    let stage = Stage::set("ab bc", once).await;
    assert_eq!(stage.ask("x").await.unwrap(), "x");
    assert_eq!((stage.batches("b"), stage.batches("c")), (2, 1));

    let stage =
        Stage::set("ab bc", |node, _| if node == "b" { Act::Raise } else { Act::Echo }).await;
    let error = stage.ask("x").await.unwrap_err();
    let expected = "Error executing b: Prediction failed (2 attempts)";
    assert_eq!(error.to_string(), expected);
    assert_eq!((stage.batches("b"), stage.batches("c")), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_takes_too_long_counts_as_failed() {
    let stage = Stage::set("ab", |_, _| Act::Silence).await;
    let started = Instant::now();
    let error = stage.ask("x").await.unwrap_err().to_string();
    assert_eq!(error, "Error executing a: no answer within 10000 ms (2 attempts)");
    assert_eq!((started.elapsed().as_secs(), stage.batches("b")), (20, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failure_takes_the_other_branches_along() {
    let script = |node: &str, _: &ScriptedBatch| match node {
        "b" => Act::Raise,
        "c" => after(5, Act::Echo),
        _ => Act::Echo,
    };
    let stage = Stage::set("abc cd", script).await;
    assert!(stage.ask("x").await.is_err());
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(stage.batches("d"), 0, "a request that has failed goes no further");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_ends_the_whole_run() {
    let slow =
        |node: &str, _: &ScriptedBatch| if node == "b" { after(5, Act::Echo) } else { Act::Echo };
    let stage = Stage::set("ab bc", slow).await;
    let graph = Arc::clone(&stage.graph);
    let client = tokio::spawn(async move { run(&graph, call("x")).await });
    tokio::time::sleep(SECOND).await;
    client.abort();
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(["a", "b", "c"].map(|node| stage.batches(node)), [1, 1, 0]);
    assert_eq!(stage.kits[1].model.status().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_request_holds_for_every_node() {
    let slow =
        |node: &str, _: &ScriptedBatch| if node == "a" { after(5, Act::Echo) } else { Act::Echo };
    let stage = Stage::set("ab", slow).await;
    let mut call = call("x");
    call.deadline = Some(Instant::now() + 3 * SECOND);
    let error = run(&stage.graph, call).await.unwrap_err();
    let RunError::Rejected { error: CallError::Rejected { reason, .. }, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((reason, stage.batches("b")), (Rejection::Expired, 0));
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_passed_on_without_another_attempt() {
    let stage = Stage::set("ab", |_, _| Act::Echo).await;
    stage.kits[1].model.scale(0, 0).await.unwrap();
    let error = stage.ask("x").await.unwrap_err();
    assert!(
        matches!(error, RunError::Rejected { error: CallError::Rejected { .. }, .. }),
        "{error}"
    );
}
