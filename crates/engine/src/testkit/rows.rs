//! A local model for tests: a request is a JSON list of rows, and an answer counts them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use crate::call::{DecodedInput, Input, Output};
use crate::local::{Batches, Decoded, LocalModel, LocalSession, Signature};
use crate::outcome::{BatchOutcome, ItemOutcome};

/// Decodes rows.
#[derive(Default)]
pub struct RowsModel {
    /// Whether all rows of a request must stay in one batch.
    pub whole: bool,
    /// The length of its sample, for a model that pads.
    pub padded: Option<u64>,
}

/// Some rows of a request, written as the range that they are.
struct Rows(Range<u32>);

impl fmt::Debug for Rows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl DecodedInput for Rows {
    fn items(&self) -> u32 {
        self.0.len() as u32
    }

    fn split(&self, items: u32) -> Vec<Arc<dyn DecodedInput>> {
        let part = |start| Rows(start..(start + items).min(self.0.end));
        let parts = self.0.clone().step_by(items as usize).map(part);
        parts.map(|part| Arc::new(part) as Arc<dyn DecodedInput>).collect()
    }

    fn is_part(&self) -> bool {
        self.0.start > 0
    }

    fn put_meta(&self, _out: &mut BytesMut) {}

    fn put_body(&self, out: &mut BytesMut) {
        out.put_bytes(0, self.0.len());
    }

    fn put_identity(&self, out: &mut BytesMut) {
        self.put_body(out);
    }
}

impl RowsModel {
    fn rows(&self, items: u32) -> Decoded {
        let input = Arc::new(Rows(0..items));
        Decoded { input, items, group: 0, splits: !self.whole, length: self.padded }
    }
}

impl LocalModel for RowsModel {
    fn runtime(&self) -> &'static str {
        "rows"
    }

    fn name(&self) -> &str {
        "rows"
    }

    fn version(&self) -> &str {
        "1.0"
    }

    fn signature(&self) -> &Signature {
        const NONE: &Signature = &Signature { inputs: Vec::new(), outputs: Vec::new() };
        NONE
    }

    fn max_batch_size(&self) -> Option<u32> {
        None
    }

    fn pads(&self) -> bool {
        self.padded.is_some()
    }

    fn decode(&self, input: Input) -> Result<Decoded, String> {
        let rows = serde_json::from_slice::<Vec<serde_json::Value>>(&input.parameters[0].value);
        rows.map(|rows| self.rows(rows.len() as u32)).map_err(|error| error.to_string())
    }

    fn sample(&self) -> Option<Decoded> {
        self.padded.map(|_| self.rows(1))
    }

    fn finish(
        &self,
        _name: &str,
        _version: &str,
        part: &dyn DecodedInput,
        _output: Output,
    ) -> ItemOutcome {
        Ok(Output { body: part.items().to_string().into(), ..Output::default() })
    }
}

impl LocalSession for RowsModel {
    fn run_batches(&self, _name: &str, _version: &str, batches: Batches) {
        batches.run(|inputs| {
            let answer = |input: &Arc<dyn DecodedInput>| {
                Ok(Output { body: input.items().to_string().into(), ..Output::default() })
            };
            BatchOutcome::Items(inputs.iter().map(answer).collect())
        });
    }
}
