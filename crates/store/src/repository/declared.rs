//! What a configuration declares of a model's tensors, for the engine.

/// The inputs and outputs that a configuration declares: compared with the model's own, and what clients see where
/// they differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeclaredTensors {
    /// All inputs, if any is declared.
    pub inputs: Vec<DeclaredTensor>,
    /// Some outputs.
    pub outputs: Vec<DeclaredTensor>,
    /// Whether a batch dimension stands before the declared ones.
    pub batched: bool,
    /// The inputs that tell the model about sequences; the server makes them.
    pub controls: Vec<DeclaredControl>,
    /// Outputs that are inputs of the next request of their sequence; clients see neither.
    pub states: Vec<DeclaredState>,
    /// How many sequences there can be at a time.
    pub sequences: usize,
    /// The file that declares them, for messages.
    pub file: String,
}

impl DeclaredTensors {
    /// Whether the server makes an input, and no client sends it.
    pub fn is_made(&self, input: &str) -> bool {
        let states = self.states.iter().map(|state| &state.input.name);
        self.controls.iter().map(|control| &control.name).chain(states).any(|name| name == input)
    }

    /// Whether an output is kept for the next request.
    pub fn is_state_output(&self, output: &str) -> bool {
        self.states.iter().any(|state| state.output.name == output)
    }
}

/// One declared input or output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredTensor {
    /// Its name.
    pub name: String,
    /// The element type as the Open Inference Protocol names it; empty where none is declared.
    pub datatype: String,
    /// The dimensions without that of the batch; -1 for an open one. `None` where none are declared.
    pub dims: Option<Vec<i64>>,
    /// The dimensions of the model's own tensor, where clients see others.
    pub reshape: Option<Vec<i64>>,
    /// A request need not bring it.
    pub optional: bool,
    /// Requests whose other dimensions differ may share a batch.
    pub ragged: bool,
    /// Where it is declared, for messages.
    pub line: usize,
}

/// An input that the server makes of what a request says about its sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct DeclaredControl {
    /// The input's name.
    pub name: String,
    /// What it tells.
    pub kind: ControlKind,
    /// The element type as the Open Inference Protocol names it.
    pub datatype: String,
    /// What stands for false and for true; not used by the id of a sequence.
    pub values: [f64; 2],
    /// Where it is declared, for messages.
    pub line: usize,
}

/// An output that is an input of the next request of its sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeclaredState {
    /// The input, with its type and dimensions.
    pub input: DeclaredTensor,
    /// The output, with the same.
    pub output: DeclaredTensor,
}

/// What a control tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// Whether the sequence begins.
    Start,
    /// Whether it ends.
    End,
    /// Whether there is a request, which is always so here.
    Ready,
    /// Its id.
    CorrelationId,
}
