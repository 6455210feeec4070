//! `sequence_batching` of a Triton configuration: which inputs tell the model about its sequences, and the limits of
//! sequences as our settings. Both strategies, `direct` and `oldest`, are one here: the requests of a sequence run
//! one after the other, on one worker, in batches with those of other sequences.

use std::time::Duration;

use jitney_settings::model::{
    MAX_SEQUENCE_QUEUE, MAX_SEQUENCES, SEQUENCE_BATCHING, SEQUENCE_MAX_IDLE,
    SEQUENCE_START_REQUIRED,
};
use jitney_settings::{SettingSource, Values};

use super::fields::{datatype, unknown};
use super::text_format::{ConfigError, PbField};

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

/// How long a sequence may be silent where the configuration does not say so, as in Triton.
const IDLE_DEFAULT: Duration = Duration::from_secs(1);
/// Sequences at a time, which Triton lets wait and we reject beyond.
const SEQUENCES: u32 = 1024;
/// Requests of one sequence that may wait.
const SEQUENCE_QUEUE: u32 = 100;

/// Reads the field: the controls are returned, the limits are set.
pub(super) fn read(
    field: &PbField,
    settings: &mut Values,
    source: &SettingSource,
) -> Result<Vec<DeclaredControl>, ConfigError> {
    let (mut controls, mut idle, mut sequences) = (Vec::new(), IDLE_DEFAULT, SEQUENCES);
    for inner in field.message()? {
        match inner.name.as_str() {
            "max_sequence_idle_microseconds" => idle = Duration::from_micros(inner.number()?),
            "control_input" => controls.extend(control_input(inner)?),
            "oldest" => {
                for limit in inner.message()? {
                    if limit.name == "max_candidate_sequences" {
                        sequences = sequences.max(limit.number()?);
                    }
                }
            }
            "direct" | "generative_sequence" | "iterative_sequence" => {}
            "state" => {
                return Err(
                    inner.wrong("state tensors are not supported; a model.py can keep state")
                );
            }
            _ => {
                let known = ["max_sequence_idle_microseconds", "control_input", "oldest", "direct"];
                return Err(unknown(inner, known));
            }
        }
    }
    settings.set(&SEQUENCE_BATCHING, true, source.clone());
    settings.set(&SEQUENCE_START_REQUIRED, true, source.clone());
    settings.set(&SEQUENCE_MAX_IDLE, idle.max(Duration::from_millis(1)), source.clone());
    settings.set(&MAX_SEQUENCES, sequences, source.clone());
    settings.set(&MAX_SEQUENCE_QUEUE, SEQUENCE_QUEUE, source.clone());
    Ok(controls)
}

/// One input; its list of controls has one entry.
fn control_input(field: &PbField) -> Result<Option<DeclaredControl>, ConfigError> {
    let mut name = "";
    let mut found = None;
    for inner in field.message()? {
        match inner.name.as_str() {
            "name" => name = inner.text()?,
            "control" => found = Some(control(inner)?),
            _ => return Err(unknown(inner, ["name", "control"])),
        }
    }
    Ok(found.map(|control| DeclaredControl { name: name.to_owned(), ..control }))
}

fn control(field: &PbField) -> Result<DeclaredControl, ConfigError> {
    let (mut kind, mut values) = (None, Vec::new());
    let mut kind_of = String::new();
    for inner in field.message()? {
        match inner.name.as_str() {
            "kind" => {
                kind = Some(match inner.word()? {
                    "CONTROL_SEQUENCE_START" => ControlKind::Start,
                    "CONTROL_SEQUENCE_END" => ControlKind::End,
                    "CONTROL_SEQUENCE_READY" => ControlKind::Ready,
                    "CONTROL_SEQUENCE_CORRID" => ControlKind::CorrelationId,
                    word => return Err(inner.wrong(format!("the control {word:?} is unknown"))),
                });
            }
            "int32_false_true" | "fp32_false_true" => {
                kind_of = inner.name.trim_end_matches("_false_true").to_uppercase();
                values.push(inner.number::<f64>()?);
            }
            "bool_false_true" => {
                "BOOL".clone_into(&mut kind_of);
                values.push(f64::from(u8::from(inner.is_true()?)));
            }
            "data_type" => kind_of = datatype(inner)?,
            _ => {
                let known = ["kind", "int32_false_true", "fp32_false_true", "bool_false_true"];
                return Err(unknown(inner, known.into_iter().chain(["data_type"])));
            }
        }
    }
    let kind = kind.ok_or_else(|| field.wrong("a control without a kind"))?;
    let values = match (values.as_slice(), kind) {
        ([off, on], _) => [*off, *on],
        ([], ControlKind::CorrelationId) if !kind_of.is_empty() => [0.0, 1.0],
        _ => return Err(field.wrong("a control takes two values, or the data type of an id")),
    };
    Ok(DeclaredControl { name: String::new(), kind, datatype: kind_of, values, line: field.line })
}
