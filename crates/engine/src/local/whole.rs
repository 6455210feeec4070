//! A model whose requests run whole and alone, although its shapes have an open first dimension: its rows
//! belong together.

use std::sync::Arc;

use super::{BodyKind, Decoded, LocalModel, Signature};
use crate::call::{DecodedInput, Input, Output};
use crate::outcome::ItemOutcome;

/// The model behind it, one request at a time.
pub(crate) struct WholeModel(Arc<dyn LocalModel>);

impl WholeModel {
    /// The model, without a batch dimension.
    pub(crate) fn of(model: Arc<dyn LocalModel>) -> Arc<dyn LocalModel> {
        Arc::new(Self(model))
    }
}

impl LocalModel for WholeModel {
    fn runtime(&self) -> &'static str {
        self.0.runtime()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn version(&self) -> &str {
        self.0.version()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn takes_tensors(&self) -> bool {
        self.0.takes_tensors()
    }

    fn labels(&self, output: &str) -> Option<&[String]> {
        self.0.labels(output)
    }

    fn body_kind(&self) -> BodyKind {
        self.0.body_kind()
    }

    fn max_batch_size(&self) -> Option<u32> {
        Some(1)
    }

    fn pads(&self) -> bool {
        false
    }

    fn decode(&self, input: Input) -> Result<Decoded, String> {
        let decoded = self.0.decode(input)?;
        Ok(Decoded { items: 1, splits: false, length: None, ..decoded })
    }

    fn sample(&self) -> Option<Decoded> {
        self.0.sample()
    }

    fn finish(
        &self,
        name: &str,
        version: &str,
        input: &dyn DecodedInput,
        output: Output,
    ) -> ItemOutcome {
        self.0.finish(name, version, input, output)
    }
}
