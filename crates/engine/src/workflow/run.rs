//! Runs one request of a workflow: every node as soon as its inputs are there, side by side where the DAG
//! allows it.
//!
//! The tasks of the nodes belong to the run and end with it, so when the client goes away or a node
//! fails, the request leaves every queue.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::dag::Dag;
use super::error::RunError;
use crate::Rejection;
use crate::call::{Answer, Call, Input, Output, Parameter};
use crate::error::CallError;
use crate::model::Model;

/// A streamed answer is put together before the next node sees it, up to here.
const COLLECTED_BYTES_MAX: usize = 256 << 20;

/// A node and the model behind it.
pub(crate) struct WorkflowNode {
    /// Its name in the DAG.
    pub(crate) name: String,
    pub(crate) model: Arc<Model>,
    /// How long one attempt may take.
    pub(crate) timeout: Duration,
    /// Attempts after the first one.
    pub(crate) retries: u32,
}

impl WorkflowNode {
    /// The error of a call that is not worth a second attempt.
    pub(crate) fn rejection(&self, error: CallError) -> RunError {
        let queue_max = self.model.settings().queue_max;
        RunError::Rejected { model: self.model.name().to_owned(), queue_max, error }
    }
}

/// The nodes in the DAG's order.
pub(crate) struct NodeGraph {
    pub(crate) dag: Dag,
    pub(crate) nodes: Vec<WorkflowNode>,
}

impl NodeGraph {
    /// The node that gets the request.
    pub(crate) fn start(&self) -> &WorkflowNode {
        &self.nodes[self.dag.start]
    }
}

/// A running request.
struct Run<'a> {
    graph: &'a Arc<NodeGraph>,
    /// What the request brings for every node; without its values.
    context: Call,
    outputs: Vec<Option<Output>>,
    /// How many outputs each node still waits for.
    missing: Vec<usize>,
    running: JoinSet<Result<(usize, Output), RunError>>,
}

/// Runs a request through the whole graph.
pub(super) async fn run(graph: &Arc<NodeGraph>, call: Call) -> Result<Output, RunError> {
    let (input, mut context) = (call.input.clone(), call);
    context.input.parameters = Vec::new();
    let count = graph.nodes.len();
    let mut run = Run {
        graph,
        context,
        outputs: vec![None; count],
        missing: (0..count).map(|node| graph.dag.predecessors[node].len()).collect(),
        running: JoinSet::new(),
    };
    run.start_node(graph.dag.start, input);
    run.finish().await
}

impl Run<'_> {
    async fn finish(mut self) -> Result<Output, RunError> {
        while let Some(joined) = self.running.join_next().await {
            let lost = |_| Err(self.graph.start().rejection(CallError::Gone));
            let (node, output) = joined.unwrap_or_else(lost)?;
            self.outputs[node] = Some(output);
            for &next in &self.graph.dag.successors[node] {
                self.missing[next] -= 1;
                if self.missing[next] == 0 {
                    self.start_node(next, self.input_of(next));
                }
            }
        }
        Ok(self.answer())
    }

    fn start_node(&mut self, node: usize, input: Box<Input>) {
        let (graph, context) = (Arc::clone(self.graph), self.context.clone());
        self.running.spawn(async move {
            let output = call_node(&graph.nodes[node], &context, input).await?;
            Ok((node, output))
        });
    }

    /// One predecessor's output is the body; several have a parameter each, by their names.
    fn input_of(&self, node: usize) -> Box<Input> {
        let from = &self.graph.dag.predecessors[node][..];
        let parameter = |&before: &usize| Parameter {
            name: match from {
                [_] => "body".into(),
                _ => self.graph.nodes[before].name.clone().into(),
            },
            content_type: "".into(),
            value: self.output(before).into(),
        };
        let mut input = self.context.input.clone();
        input.parameters = from.iter().map(parameter).collect();
        input
    }

    fn output(&self, node: usize) -> Bytes {
        self.outputs[node].as_ref().map(|output| output.body.clone()).unwrap_or_default()
    }

    /// The answer of the only last node, or an object with the answer of each last node.
    fn answer(mut self) -> Output {
        let last_nodes: Vec<usize> = self.graph.dag.last_nodes().collect();
        if let [leaf] = last_nodes[..] {
            return self.outputs[leaf].take().unwrap_or_default();
        }
        let named = |leaf: usize| (self.graph.nodes[leaf].name.clone(), value(&self.output(leaf)));
        let object: Map<String, Value> = last_nodes.into_iter().map(named).collect();
        Output { body: Value::Object(object).to_string().into(), ..Output::default() }
    }
}

/// JSON as it is; anything else as text.
fn value(body: &[u8]) -> Value {
    serde_json::from_slice(body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()))
}

/// What went wrong with one attempt.
enum AttemptError {
    /// The node took too long; another attempt may be quicker.
    Late,
    /// The node failed; another attempt may go better.
    Failed(String),
    /// Nothing that another attempt would change.
    Final(CallError),
}

/// Calls a node until it answers, as often as it may be tried.
async fn call_node(
    node: &WorkflowNode,
    context: &Call,
    input: Box<Input>,
) -> Result<Output, RunError> {
    let mut attempts = 1;
    loop {
        let why = match attempt(node, context, input.clone()).await {
            Ok(output) => return Ok(output),
            Err(AttemptError::Final(error)) => return Err(node.rejection(error)),
            Err(AttemptError::Failed(why)) => why,
            Err(AttemptError::Late) => format!("no answer within {} ms", node.timeout.as_millis()),
        };
        if attempts > node.retries {
            tracing::warn!(model = node.model.name(), attempts, why, "a workflow node failed");
            return Err(RunError::Failed { node: node.name.clone(), attempts, why });
        }
        attempts += 1;
    }
}

async fn attempt(
    node: &WorkflowNode,
    context: &Call,
    input: Box<Input>,
) -> Result<Output, AttemptError> {
    let until = Instant::now() + node.timeout;
    let call = Call {
        input,
        deadline: Some(context.deadline.map_or(until, |deadline| deadline.min(until))),
        origin: context.origin,
        priority: context.priority,
        claim: context.claim.clone(),
        quota: None,
        mark: context.mark.clone(),
    };
    let called = async {
        let answer =
            node.model.call_admitted(call).await.map_err(|error| attempt_error(error, context))?;
        whole(answer, context).await
    };
    timeout_at(until, called).await.unwrap_or(Err(AttemptError::Late))
}

/// Distinguishes what another attempt may change from what it cannot.
fn attempt_error(error: CallError, context: &Call) -> AttemptError {
    let in_time = context.deadline.is_none_or(|deadline| Instant::now() < deadline);
    match error {
        CallError::Model(failure)
            if failure.status.is_some_and(|code| (400..500).contains(&code)) =>
        {
            AttemptError::Final(CallError::Model(failure))
        }
        CallError::Model(failure) => AttemptError::Failed(failure.message),
        CallError::WorkerExited { .. } => AttemptError::Failed("Worker died.".to_owned()),
        CallError::Rejected { reason: Rejection::Expired, .. } if in_time => AttemptError::Late,
        other @ (CallError::Rejected { .. }
        | CallError::NotLoaded(_)
        | CallError::Loading(_)
        | CallError::ServerFull { .. }
        | CallError::BadInput(_)
        | CallError::UnknownEndpoint(_)
        | CallError::Sequence(_)
        | CallError::Poisonous
        | CallError::SlowReader
        | CallError::Gone) => AttemptError::Final(other),
    }
}

/// The whole of an answer that may come in pieces.
async fn whole(answer: Answer, context: &Call) -> Result<Output, AttemptError> {
    let Answer { mut output, stream, .. } = answer;
    let Some(mut stream) = stream else { return Ok(output) };
    let mut body = BytesMut::from(&output.body[..]);
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|error| attempt_error(error, context))?;
        if body.len() + piece.len() > COLLECTED_BYTES_MAX {
            let why = format!("it streamed more than {COLLECTED_BYTES_MAX} bytes");
            return Err(AttemptError::Failed(why));
        }
        body.extend_from_slice(&piece);
    }
    output.body = body.freeze();
    Ok(output)
}
