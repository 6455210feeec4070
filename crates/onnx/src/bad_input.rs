//! Every way in which a request can fail to fit an ONNX model, with the sentence that its client reads:
//! what was expected and what came.

/// Why a request does not fit the model, in words for its client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadInput {
    /// There is nothing to read.
    #[error("the request has no body")]
    NoBody,
    /// Not JSON, or JSON that holds no numbers.
    #[error("cannot read the body: {0}")]
    Json(String),
    /// A route of the protocol, a body of another form.
    #[error("expected an object with \"inputs\", as the Open Inference Protocol has it")]
    NotTheProtocol,
    /// A bare list for a model of several inputs, which are these.
    #[error("a bare list fits models of one input only; this one takes {0}: send an object")]
    ListForMany(String),
    /// The model has no such input.
    #[error("unknown input {name:?}{hint}; the model takes {known}")]
    UnknownInput {
        /// What was given.
        name: String,
        /// The nearest input.
        hint: String,
        /// The model's inputs.
        known: String,
    },
    /// The model has no such output.
    #[error("unknown output {name:?}; the model gives {known}")]
    UnknownOutput {
        /// What was asked for.
        name: String,
        /// The model's outputs.
        known: String,
    },
    /// An input has no value.
    #[error("input {name:?} is missing: expected {expected}")]
    Missing {
        /// The input.
        name: String,
        /// Its type and shape.
        expected: String,
    },
    /// This input has two values.
    #[error("input {0:?} is given twice")]
    Twice(String),
    /// Another type or shape than the model's, numbers that do not fit the stated one, or none.
    #[error("input {name:?}: {reason}")]
    Value {
        /// The input.
        name: String,
        /// What is wrong with them.
        reason: String,
    },
    /// More items than the model takes at once.
    #[error("the request brings {items} items, the model takes at most {max} at once")]
    TooManyItems {
        /// What it brings.
        items: usize,
        /// What the model takes.
        max: u32,
    },
    /// Requests of too many different shapes are under way.
    #[error("requests of too many different shapes are under way; try again later")]
    TooManyShapes,
}
