//! Takes one request through a workflow: every node as soon as all it waits for is there, side by side
//! where the DAG allows it.
//!
//! The tasks of the nodes belong to the run and end with it, so a client that goes away, or a node that
//! fails, takes the whole request out of every queue. Nothing here knows what a node computes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::course::{Course, Node};
use super::error::RunError;
use crate::Rejection;
use crate::call::{
    Answer, Call, CallRoute, Claim, HeaderBlock, Input, Origin, Output, Parameter, Priority,
};
use crate::error::CallError;

/// A streamed answer is put together before the next node sees it, up to here.
const COLLECTED_BYTES_MAX: usize = 256 << 20;

/// What all calls of a run have in common.
#[derive(Clone)]
struct Traveller {
    id: String,
    /// The request's own: every node may look at them, as in TorchServe.
    headers: HeaderBlock,
    route: CallRoute,
    deadline: Option<Instant>,
    origin: Origin,
    priority: Priority,
    claim: Claim,
}

/// A run under way.
struct Run<'a> {
    course: &'a Arc<Course>,
    traveller: Traveller,
    outputs: Vec<Option<Output>>,
    /// How many outputs each node still waits for.
    missing: Vec<usize>,
    under_way: JoinSet<Result<(usize, Output), RunError>>,
}

/// Takes a request through the whole course.
pub(super) async fn run(course: &Arc<Course>, call: Call) -> Result<Output, RunError> {
    let Call { input, deadline, origin, priority, claim, .. } = call;
    let Input { id, headers, route, .. } = input.clone();
    let traveller = Traveller { id, headers, route, deadline, origin, priority, claim };
    let count = course.nodes.len();
    let mut run = Run {
        course,
        traveller,
        outputs: vec![None; count],
        missing: (0..count).map(|node| course.dag.predecessors(node).len()).collect(),
        under_way: JoinSet::new(),
    };
    run.visit(course.dag.start(), input);
    run.finish().await
}

impl Run<'_> {
    async fn finish(mut self) -> Result<Output, RunError> {
        while let Some(joined) = self.under_way.join_next().await {
            let lost = |_| Err(self.course.start().refusal(CallError::Gone));
            let (node, output) = joined.unwrap_or_else(lost)?;
            self.outputs[node] = Some(output);
            for &next in self.course.dag.successors(node) {
                self.missing[next] -= 1;
                if self.missing[next] == 0 {
                    self.visit(next, self.input_of(next));
                }
            }
        }
        Ok(self.answer())
    }

    fn visit(&mut self, node: usize, input: Input) {
        let (course, traveller) = (Arc::clone(self.course), self.traveller.clone());
        self.under_way.spawn(async move {
            let output = persist(&course.nodes[node], &traveller, input).await?;
            Ok((node, output))
        });
    }

    /// One predecessor's output is the body; several have a parameter each, by their names.
    fn input_of(&self, node: usize) -> Input {
        let from = self.course.dag.predecessors(node);
        let parameter = |&before: &usize| Parameter {
            name: match from {
                [_] => "body".into(),
                _ => self.course.nodes[before].name.clone().into(),
            },
            content_type: "".into(),
            value: self.output(before),
        };
        let parameters = from.iter().map(parameter).collect();
        let Traveller { id, headers, route, .. } = self.traveller.clone();
        Input { id, headers, route, parameters }
    }

    fn output(&self, node: usize) -> Bytes {
        self.outputs[node].as_ref().map(|output| output.body.clone()).unwrap_or_default()
    }

    /// One leaf's own answer, or an object with the answer of each.
    fn answer(mut self) -> Output {
        let leaves: Vec<usize> = self.course.dag.leaves().collect();
        if let [leaf] = leaves[..] {
            return self.outputs[leaf].take().unwrap_or_default();
        }
        let named = |leaf: usize| (self.course.nodes[leaf].name.clone(), value(&self.output(leaf)));
        let object: Map<String, Value> = leaves.into_iter().map(named).collect();
        Output { body: Value::Object(object).to_string().into(), ..Output::default() }
    }
}

/// A leaf's JSON; what is none passes as text.
fn value(body: &[u8]) -> Value {
    serde_json::from_slice(body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()))
}

/// What went wrong with one try.
enum Trouble {
    /// The node took too long; another try may be quicker.
    Late,
    /// The node failed; another try may go better.
    Failed(String),
    /// Nothing that another try would change.
    Final(CallError),
}

/// Asks a node until it answers, as often as it may be tried.
async fn persist(node: &Node, traveller: &Traveller, input: Input) -> Result<Output, RunError> {
    let mut attempts = 1;
    loop {
        let why = match try_once(node, traveller, input.clone()).await {
            Ok(output) => return Ok(output),
            Err(Trouble::Final(error)) => return Err(node.refusal(error)),
            Err(Trouble::Failed(why)) => why,
            Err(Trouble::Late) => format!("no answer within {} ms", node.timeout.as_millis()),
        };
        if attempts > node.retries {
            tracing::warn!(model = node.model.name(), attempts, why, "a workflow node failed");
            return Err(RunError::Failed { node: node.name.clone(), attempts, why });
        }
        attempts += 1;
    }
}

async fn try_once(node: &Node, traveller: &Traveller, input: Input) -> Result<Output, Trouble> {
    let until = Instant::now() + node.timeout;
    let call = Call {
        input,
        deadline: Some(traveller.deadline.map_or(until, |deadline| deadline.min(until))),
        origin: traveller.origin,
        priority: traveller.priority,
        claim: traveller.claim.clone(),
    };
    let asked = async {
        let answer =
            node.model.call_admitted(call).await.map_err(|error| trouble(error, traveller))?;
        whole(answer, traveller).await
    };
    timeout_at(until, asked).await.unwrap_or(Err(Trouble::Late))
}

/// Tells what another try may change from what it cannot.
fn trouble(error: CallError, traveller: &Traveller) -> Trouble {
    let in_time = traveller.deadline.is_none_or(|deadline| Instant::now() < deadline);
    match error {
        CallError::Model(failure)
            if failure.status.is_some_and(|code| (400..500).contains(&code)) =>
        {
            Trouble::Final(CallError::Model(failure))
        }
        CallError::Model(failure) => Trouble::Failed(failure.message),
        CallError::WorkerExited { .. } => Trouble::Failed("Worker died.".to_owned()),
        CallError::Rejected { reason: Rejection::Expired, .. } if in_time => Trouble::Late,
        other @ (CallError::Rejected { .. }
        | CallError::ServerFull { .. }
        | CallError::BadInput(_)
        | CallError::Sequence(_)
        | CallError::SlowReader
        | CallError::Gone) => Trouble::Final(other),
    }
}

/// The whole of an answer that may come in pieces.
async fn whole(answer: Answer, traveller: &Traveller) -> Result<Output, Trouble> {
    let Answer { mut output, stream, .. } = answer;
    let Some(mut stream) = stream else { return Ok(output) };
    let mut body = BytesMut::from(&output.body[..]);
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|error| trouble(error, traveller))?;
        if body.len() + piece.len() > COLLECTED_BYTES_MAX {
            let why = format!("it streamed more than {COLLECTED_BYTES_MAX} bytes");
            return Err(Trouble::Failed(why));
        }
        body.extend_from_slice(&piece);
    }
    output.body = body.freeze();
    Ok(output)
}
