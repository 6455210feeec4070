//! The headers of sequences. Apart from [`super`], which knows ids and no headers: operators may give
//! the three names of their own, and every door, the model's task and its handlers must mean the same.

/// Names of headers, compared without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceHeaders {
    /// Names the sequence that a request belongs to.
    pub id: String,
    /// Says `true` where a sequence begins.
    pub start: String,
    /// Names, in an answer, the sequences that are over.
    pub end: String,
}

impl Default for SequenceHeaders {
    fn default() -> Self {
        Self {
            id: "ts_request_sequence_id".to_owned(),
            start: "ts_request_sequence_start".to_owned(),
            end: "ts_request_sequence_end".to_owned(),
        }
    }
}
