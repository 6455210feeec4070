//! `sequence_batching` of a Triton configuration: which inputs tell the model about its sequences, and the limits of
//! sequences as our settings. Both strategies, `direct` and `oldest`, are one here: the requests of a sequence run
//! one after the other, on one worker, in batches with those of other sequences. What they say of waiting differs.

use std::time::Duration;

use jitney_settings::model::{
    MAX_BATCH_DELAY, MAX_SEQUENCE_QUEUE, MAX_SEQUENCES, SEQUENCE_BATCHING, SEQUENCE_MAX_IDLE,
    SEQUENCE_START_REQUIRED,
};
use jitney_settings::{SettingSource, Values};

use super::declared::{
    ControlKind, DeclaredControl, DeclaredState, DeclaredTensor, DeclaredTensors,
};
use super::fields::{datatype, unknown};
use super::text_format::{ConfigError, PbField};

/// How long a sequence may be silent where the configuration does not say so, as in Triton.
const IDLE_DEFAULT: Duration = Duration::from_secs(1);
/// Sequences at a time, which Triton lets wait and we reject beyond.
const SEQUENCES: u32 = 1024;
/// Requests of one sequence that may wait.
const SEQUENCE_QUEUE: u32 = 100;

/// The field of both strategies.
const DELAY: &str = "max_queue_delay_microseconds";

/// Reads the field: what the server makes is declared, the limits are set, and what has no effect is told.
pub(super) fn read(
    field: &PbField,
    declared: &mut DeclaredTensors,
    settings: &mut Values,
    source: &SettingSource,
) -> Result<Vec<String>, ConfigError> {
    let (mut idle, mut strategy) = (IDLE_DEFAULT, SequenceStrategy::default());
    for inner in field.message()? {
        match inner.name.as_str() {
            "max_sequence_idle_microseconds" => idle = Duration::from_micros(inner.number()?),
            "control_input" => declared.controls.extend(control_input(inner)?),
            "state" => declared.states.push(state(inner)?),
            "oldest" => strategy = oldest(inner)?,
            "direct" => strategy = direct(inner)?,
            "generative_sequence" | "iterative_sequence" => {}
            _ => {
                let known = ["max_sequence_idle_microseconds", "control_input", "oldest", "direct"];
                return Err(unknown(inner, known.into_iter().chain(["state"])));
            }
        }
    }
    settings.set(&SEQUENCE_BATCHING, true, source.clone());
    settings.set(&SEQUENCE_START_REQUIRED, true, source.clone());
    settings.set(&SEQUENCE_MAX_IDLE, idle.max(Duration::from_millis(1)), source.clone());
    let sequences = strategy.candidates.max(SEQUENCES);
    settings.set(&MAX_SEQUENCES, sequences, source.clone());
    settings.set(&MAX_SEQUENCE_QUEUE, SEQUENCE_QUEUE, source.clone());
    if !strategy.delay.is_zero() {
        settings.set(&MAX_BATCH_DELAY, strategy.delay, source.clone());
    }
    declared.sequences = sequences as usize;
    Ok(strategy.remarks)
}

/// What a strategy says beyond its name.
#[derive(Default)]
struct SequenceStrategy {
    /// Sequences that may have requests in batches at a time.
    candidates: u32,
    /// How long a batch waits for requests of more sequences.
    delay: Duration,
    remarks: Vec<String>,
}

/// Batches are made of the requests that came first, of any sequences.
fn oldest(field: &PbField) -> Result<SequenceStrategy, ConfigError> {
    let mut strategy = SequenceStrategy::default();
    for inner in field.message()? {
        match inner.name.as_str() {
            "max_candidate_sequences" => strategy.candidates = inner.number()?,
            DELAY => strategy.delay = Duration::from_micros(inner.number()?),
            "preferred_batch_size" | "preserve_ordering" => strategy
                .remarks
                .push(format!("line {}: {} has no effect here", inner.line, inner.name)),
            _ => {
                let known = ["max_candidate_sequences", DELAY, "preferred_batch_size"];
                return Err(unknown(inner, known.into_iter().chain(["preserve_ordering"])));
            }
        }
    }
    Ok(strategy)
}

/// Every sequence has a place of its own in the batches; they wait only where a share of the places must be taken.
fn direct(field: &PbField) -> Result<SequenceStrategy, ConfigError> {
    let mut strategy = SequenceStrategy::default();
    let mut waits = false;
    for inner in field.message()? {
        match inner.name.as_str() {
            DELAY => strategy.delay = Duration::from_micros(inner.number()?),
            "minimum_slot_utilization" => waits = inner.number::<f64>()? > 0.0,
            _ => return Err(unknown(inner, [DELAY, "minimum_slot_utilization"])),
        }
    }
    if !waits {
        strategy.delay = Duration::ZERO;
    }
    Ok(strategy)
}

/// A pair of tensors; a new sequence begins with zeros, which is what an initial state may say.
fn state(field: &PbField) -> Result<DeclaredState, ConfigError> {
    let mut state = DeclaredState::default();
    for inner in field.message()? {
        match inner.name.as_str() {
            "input_name" => state.input.name = inner.text()?.to_owned(),
            "output_name" => state.output.name = inner.text()?.to_owned(),
            "data_type" => state.input.datatype = datatype(inner)?,
            "dims" => state.input.dims.get_or_insert_default().push(inner.number()?),
            "initial_state" => {
                let file = inner.message()?.iter().find(|it| it.name == "data_file");
                if let Some(file) = file {
                    let why = "data_file is not supported: the state of a new sequence is zeros";
                    return Err(file.wrong(why));
                }
            }
            "use_same_buffer_for_input_output" | "use_growable_memory" => {}
            _ => {
                let known = ["input_name", "output_name", "data_type", "dims", "initial_state"];
                return Err(unknown(inner, known));
            }
        }
    }
    if state.input.name.is_empty() || state.output.name.is_empty() {
        return Err(field.wrong("a state takes an input_name and an output_name"));
    }
    let DeclaredTensor { datatype, dims, .. } = state.input.clone();
    state.input.line = field.line;
    state.output = DeclaredTensor { datatype, dims, line: field.line, ..state.output };
    Ok(state)
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
