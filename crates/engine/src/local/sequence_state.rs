//! State tensors of sequences: an output of one request is an input of the next one of the same sequence. Clients see
//! neither. The first request of a sequence gets zeros.
//!
//! Requests of a sequence run one after the other, so the state is put into a request when it goes to its worker, and
//! not before.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::{Bytes, BytesMut};

use super::{Decoded, LocalModel};
use crate::call::{CallRoute, DecodedInput, HeaderBlock, Input, Output, SequenceRef};
use crate::store::{DeclaredState, DeclaredTensor, DeclaredTensors};
use crate::tensors::{Datatype, NamedTensor, TensorRequest};

/// The states of all sequences of a model.
pub(super) struct SequenceStates {
    file: Arc<dyn LocalModel>,
    declared: Arc<DeclaredTensors>,
    kept: Mutex<KeptStates>,
}

/// What each sequence left, and when, counted in requests.
#[derive(Default)]
struct KeptStates {
    by_sequence: HashMap<String, (u64, Vec<NamedTensor>)>,
    requests: u64,
}

impl SequenceStates {
    /// For the model of a file, whose state tensors are declared.
    pub(super) fn new(file: &Arc<dyn LocalModel>, declared: &Arc<DeclaredTensors>) -> Self {
        let (file, declared) = (Arc::clone(file), Arc::clone(declared));
        Self { file, declared, kept: Mutex::default() }
    }

    /// The request as it waits; its state is put in when it runs.
    ///
    /// # Errors
    /// A sentence for the client when it does not fit the model.
    pub(super) fn decode(
        self: &Arc<Self>,
        mut request: TensorRequest,
        sequence: SequenceRef,
    ) -> Result<Decoded, String> {
        if !request.outputs.is_empty() {
            let outputs = self.declared.states.iter().map(|it| it.output.name.as_str().into());
            request.outputs = request.outputs.iter().cloned().chain(outputs).collect();
        }
        let decoded = self.with_state(&request, |state| zeros(state, &request, &self.declared))?;
        let states = Arc::clone(self);
        let waiting = Arc::clone(&decoded.input);
        let running = OnceLock::new();
        let input = Arc::new(StatefulInput { states, request, sequence, waiting, running });
        Ok(Decoded { input, splits: false, ..decoded })
    }

    /// The request with a tensor for each state, as the model of the file takes it.
    fn with_state(
        &self,
        request: &TensorRequest,
        state: impl Fn(&DeclaredState) -> Result<NamedTensor, String>,
    ) -> Result<Decoded, String> {
        let states = self.declared.states.iter().map(state).collect::<Result<Vec<_>, _>>()?;
        let inputs = request.inputs.iter().cloned().chain(states).collect();
        let tensors = Some(Arc::new(TensorRequest { inputs, outputs: request.outputs.clone() }));
        let (headers, route) = (HeaderBlock::new(), CallRoute::default());
        self.file.decode(Input {
            id: String::new(),
            headers,
            route,
            parameters: Vec::new(),
            tensors,
        })
    }

    /// What the sequence left; nothing where it begins.
    fn left(&self, sequence: &SequenceRef) -> Option<Vec<NamedTensor>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let left = kept.by_sequence.get(&sequence.id).filter(|_| !sequence.starts);
        left.map(|(_, tensors)| tensors.clone())
    }

    /// Takes the state out of an answer and keeps it for the next request. The sequence that was silent for longest
    /// goes where more are kept than there can be.
    pub(super) fn keep(&self, input: &StatefulInput, output: &mut Output) {
        let tensors = std::mem::take(&mut output.tensors).unwrap_or_default().into_vec();
        let states = &self.declared.states;
        let place =
            |tensor: &NamedTensor| states.iter().position(|it| it.output.name == tensor.name());
        let (own, shown): (Vec<_>, Vec<_>) =
            tensors.into_iter().partition(|tensor| place(tensor).is_some());
        output.tensors = Some(shown.into_boxed_slice());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.requests += 1;
        let now = kept.requests;
        if input.sequence.ends {
            kept.by_sequence.remove(&input.sequence.id);
            return;
        }
        kept.by_sequence.insert(input.sequence.id.clone(), (now, own));
        if kept.by_sequence.len() > self.declared.sequences {
            let oldest = kept.by_sequence.iter().min_by_key(|(_, (when, _))| *when);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                kept.by_sequence.remove(&oldest);
            }
        }
    }
}

/// A request that gets its state when it runs.
pub(super) struct StatefulInput {
    states: Arc<SequenceStates>,
    request: TensorRequest,
    sequence: SequenceRef,
    /// It with zeros for a state.
    waiting: Arc<dyn DecodedInput>,
    /// It with its state.
    running: OnceLock<Arc<dyn DecodedInput>>,
}

impl StatefulInput {
    /// The request behind what a worker was given, if it is such.
    pub(super) fn of(input: &dyn DecodedInput) -> Option<&Self> {
        (input as &dyn Any).downcast_ref()
    }

    /// The request with its state. One that does not fit the model, which no model should leave, counts as none.
    pub(super) fn running(&self) -> &Arc<dyn DecodedInput> {
        self.running.get_or_init(|| {
            let Some(left) = self.states.left(&self.sequence) else {
                return Arc::clone(&self.waiting);
            };
            let renamed = |state: &DeclaredState| {
                let found = left.iter().find(|tensor| tensor.name() == state.output.name);
                let found = found.ok_or_else(|| format!("no output {:?}", state.output.name))?;
                let (shape, data) = (found.shape().to_vec(), found.data().clone());
                NamedTensor::new(state.input.name.as_str(), found.datatype(), shape, data)
            };
            match self.states.with_state(&self.request, renamed) {
                Ok(decoded) => decoded.input,
                Err(why) => {
                    tracing::warn!(why, "a state does not fit its model: the sequence begins anew");
                    Arc::clone(&self.waiting)
                }
            }
        })
    }
}

impl std::fmt::Debug for StatefulInput {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("StatefulInput").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl DecodedInput for StatefulInput {
    fn items(&self) -> u32 {
        self.waiting.items()
    }

    fn split(&self, items: u32) -> Vec<Arc<dyn DecodedInput>> {
        self.waiting.split(items)
    }

    fn is_part(&self) -> bool {
        false
    }

    fn wants_tensors(&self) -> bool {
        self.waiting.wants_tensors()
    }

    fn put_meta(&self, out: &mut BytesMut) {
        self.running().put_meta(out);
    }

    fn put_body(&self, out: &mut BytesMut) {
        self.running().put_body(out);
    }

    fn put_identity(&self, out: &mut BytesMut) {
        self.waiting.put_identity(out);
    }
}

/// The state of a sequence that begins. An open size is 1.
fn zeros(
    state: &DeclaredState,
    request: &TensorRequest,
    declared: &DeclaredTensors,
) -> Result<NamedTensor, String> {
    let DeclaredTensor { name, datatype, dims, .. } = &state.input;
    let datatype = Datatype::parse(datatype).ok_or_else(|| format!("{name:?} has no type"))?;
    let rows = request.rows().filter(|_| declared.batched);
    let sizes = dims.iter().flatten().map(|size| usize::try_from(*size).unwrap_or(1));
    let shape: Vec<usize> = rows.into_iter().chain(sizes).collect();
    // An empty text has a length of four zero bytes.
    let bytes = shape.iter().product::<usize>() * datatype.width().unwrap_or(4);
    NamedTensor::new(name.as_str(), datatype, shape, Bytes::from(vec![0; bytes]))
}
