//! A model as its configuration shows it to clients, around the model of the file: tensors of other shapes with the
//! same elements, and inputs about sequences, which the server makes. No element is copied or changed.

use std::sync::Arc;

use bytes::Bytes;

use super::declared;
use super::sequence_state::{SequenceStates, StatefulInput};
use super::{BodyKind, Decoded, Dim, LocalModel, Signature, TensorSpec};
use crate::call::{DecodedInput, Input, Output, SequenceRef};
use crate::outcome::{ItemOutcome, ModelFailure};
use crate::store::{ControlKind, DeclaredControl, DeclaredTensor, DeclaredTensors};
use crate::tensors::{Datatype, NamedTensor, TensorRequest};

/// The model that clients see.
pub(crate) struct DeclaredModel {
    file: Arc<dyn LocalModel>,
    signature: Signature,
    declared: Arc<DeclaredTensors>,
    /// What keeps the state tensors, where the model has some.
    states: Option<Arc<SequenceStates>>,
}

impl DeclaredModel {
    /// The model as it is declared: itself, where clients are to see no other. `threads` says that it runs in this
    /// process.
    ///
    /// # Errors
    /// A sentence with file and line where the declaration is not of this model.
    pub(crate) fn around(
        file: Arc<dyn LocalModel>,
        declared: &Arc<DeclaredTensors>,
        threads: bool,
    ) -> Result<Arc<dyn LocalModel>, String> {
        declared::check(declared, file.signature())
            .map_err(|(line, why)| format!("{}:{line}: {why}", declared.file))?;
        let changes = |tensors: &[DeclaredTensor]| tensors.iter().any(|it| it.reshape.is_some());
        if threads && (changes(&declared.outputs) || !declared.states.is_empty()) {
            return Err(format!(
                "{}: reshape of outputs and state tensors need isolation: process",
                declared.file
            ));
        }
        let is_same = declared.controls.is_empty()
            && declared.states.is_empty()
            && !changes(&declared.inputs)
            && !changes(&declared.outputs);
        if is_same {
            return Ok(file);
        }
        let own = file.signature();
        let is_made = |spec: &&TensorSpec| declared.is_made(&spec.name);
        let is_state = |spec: &&TensorSpec| declared.is_state_output(&spec.name);
        let inputs = own.inputs.iter().filter(|spec| !is_made(spec));
        let outputs = own.outputs.iter().filter(|spec| !is_state(spec));
        let shown = |spec, tensors| shown(spec, tensors, declared.batched);
        let signature = Signature {
            inputs: inputs.map(|spec| shown(spec, &declared.inputs)).collect(),
            outputs: outputs.map(|spec| shown(spec, &declared.outputs)).collect(),
        };
        let has_states = !declared.states.is_empty();
        let states = has_states.then(|| Arc::new(SequenceStates::new(&file, declared)));
        Ok(Arc::new(Self { file, signature, declared: Arc::clone(declared), states }))
    }

    /// The request that the model of the file takes.
    fn request(
        &self,
        shown: &TensorRequest,
        sequence: Option<&SequenceRef>,
    ) -> Result<TensorRequest, String> {
        let DeclaredTensors { inputs, controls, batched, .. } = &*self.declared;
        let reshaped =
            shown.inputs.iter().map(|tensor| reshaped(tensor, inputs, *batched, TensorWay::In));
        let mut inputs = reshaped.collect::<Result<Vec<_>, _>>()?;
        if !controls.is_empty() {
            let sequence = sequence.ok_or(NO_SEQUENCE)?;
            let rows = shown.rows().filter(|_| *batched);
            for control in controls {
                inputs.push(control_tensor(control, sequence, rows)?);
            }
        }
        Ok(TensorRequest { inputs, outputs: shown.outputs.clone() })
    }
}

impl LocalModel for DeclaredModel {
    fn runtime(&self) -> &'static str {
        self.file.runtime()
    }

    fn name(&self) -> &str {
        self.file.name()
    }

    fn version(&self) -> &str {
        self.file.version()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn file_signature(&self) -> &Signature {
        self.file.file_signature()
    }

    fn takes_tensors(&self) -> bool {
        self.file.takes_tensors()
    }

    fn labels(&self, output: &str) -> Option<&[String]> {
        self.file.labels(output)
    }

    fn body_kind(&self) -> BodyKind {
        self.file.body_kind()
    }

    fn max_batch_size(&self) -> Option<u32> {
        self.file.max_batch_size()
    }

    fn pads(&self) -> bool {
        self.file.pads()
    }

    fn decode(&self, mut input: Input) -> Result<Decoded, String> {
        if let Some(shown) = input.tensors.take() {
            let sequence = input.route.sequence.as_deref();
            let request = self.request(&shown, sequence)?;
            if let Some(states) = &self.states {
                return states.decode(request, sequence.ok_or(NO_SEQUENCE)?.clone());
            }
            input.tensors = Some(Arc::new(request));
        }
        let decoded = self.file.decode(input)?;
        // Its rows are of one sequence.
        Ok(Decoded { splits: decoded.splits && self.declared.controls.is_empty(), ..decoded })
    }

    fn sample(&self) -> Option<Decoded> {
        self.file.sample()
    }

    fn finish(
        &self,
        name: &str,
        version: &str,
        input: &dyn DecodedInput,
        output: Output,
    ) -> ItemOutcome {
        let stateful = StatefulInput::of(input);
        let running = stateful.map_or(input, |input| &**input.running());
        let mut output = self.file.finish(name, version, running, output)?;
        if let (Some(states), Some(input)) = (&self.states, stateful) {
            states.keep(input, &mut output);
        }
        let DeclaredTensors { outputs, batched, .. } = &*self.declared;
        for tensor in output.tensors.iter_mut().flatten() {
            let shown = reshaped(tensor, outputs, *batched, TensorWay::Out);
            *tensor = shown.map_err(ModelFailure::raised)?;
        }
        Ok(output)
    }
}

const NO_SEQUENCE: &str =
    "it must specify a non-zero or non-empty correlation ID: the model keeps sequences";

/// Whether a tensor goes to the model or comes from it.
#[derive(Clone, Copy)]
enum TensorWay {
    In,
    Out,
}

/// What clients see of an input or output.
fn shown(spec: &TensorSpec, declared: &[DeclaredTensor], batched: bool) -> TensorSpec {
    let found = declared.iter().find(|tensor| tensor.name == spec.name && tensor.reshape.is_some());
    let Some(dims) = found.and_then(|tensor| tensor.dims.as_ref()) else { return spec.clone() };
    let batch = spec.shape.as_ref().and_then(|shape| shape.first()).filter(|_| batched).cloned();
    let dim = |(place, size): (usize, &i64)| match usize::try_from(*size) {
        Ok(size) => Dim::Fixed(size),
        // The first one is no batch where there is none.
        Err(_) if place == 0 && !batched => Dim::Open(String::new()),
        Err(_) => Dim::Open(format!("unnamed_{place}")),
    };
    let shape = batch.into_iter().chain(dims.iter().enumerate().map(dim)).collect();
    TensorSpec { shape: Some(shape), ..spec.clone() }
}

/// The tensor in its other shape. Open dimensions keep their sizes, in their order.
fn reshaped(
    tensor: &NamedTensor,
    declared: &[DeclaredTensor],
    batched: bool,
    way: TensorWay,
) -> Result<NamedTensor, String> {
    let found = declared.iter().find(|one| one.name == tensor.name());
    let found = found.and_then(|one| Some((one.dims.as_ref()?, one.reshape.as_ref()?)));
    let Some((outer, inner)) = found else { return Ok(tensor.clone()) };
    let (from, to) = match way {
        TensorWay::In => (outer, inner),
        TensorWay::Out => (inner, outer),
    };
    let (batch, own) = tensor.shape().split_at(usize::from(batched).min(tensor.shape().len()));
    let mut open = from.iter().zip(own).filter(|(size, _)| **size < 0).map(|(_, size)| *size);
    let sizes = to.iter().map(|size| usize::try_from(*size).ok().or_else(|| open.next()));
    let sizes = batch.iter().map(|size| Some(*size)).chain(sizes).collect::<Option<Vec<_>>>();
    let shape = sizes.ok_or_else(|| {
        format!("{:?} of shape {:?} has no size for {to:?}", tensor.name(), tensor.shape())
    })?;
    NamedTensor::new(tensor.name(), tensor.datatype(), shape, tensor.data().clone())
}

/// One value for each row, or one for a model without rows.
fn control_tensor(
    control: &DeclaredControl,
    sequence: &SequenceRef,
    rows: Option<usize>,
) -> Result<NamedTensor, String> {
    let DeclaredControl { name, kind, datatype, values: [off, on], .. } = control;
    let datatype = Datatype::parse(datatype).ok_or_else(|| format!("{name:?} has no type"))?;
    let value = |is: bool| number(datatype, if is { *on } else { *off });
    let element = match kind {
        ControlKind::Start => value(sequence.starts),
        ControlKind::End => value(sequence.ends),
        ControlKind::Ready => value(true),
        ControlKind::CorrelationId => correlation_id(datatype, &sequence.id),
    };
    let element = element.ok_or_else(|| {
        format!(
            "the sequence id {:?} is none of type {datatype}, which the model takes",
            sequence.id
        )
    })?;
    let shape: Vec<usize> = rows.into_iter().chain([1]).collect();
    NamedTensor::new(name.as_str(), datatype, shape, Bytes::from(element.repeat(rows.unwrap_or(1))))
}

fn number(datatype: Datatype, value: f64) -> Option<Vec<u8>> {
    if datatype == Datatype::Int32 {
        Some((value as i32).to_le_bytes().to_vec())
    } else if datatype == Datatype::Fp32 {
        Some((value as f32).to_le_bytes().to_vec())
    } else {
        (datatype == Datatype::Bool).then(|| vec![u8::from(value != 0.0)])
    }
}

/// The id as an element: a text, or a whole number of the declared width.
fn correlation_id(datatype: Datatype, id: &str) -> Option<Vec<u8>> {
    if datatype == Datatype::Bytes {
        return Some([&u32::try_from(id.len()).ok()?.to_le_bytes()[..], id.as_bytes()].concat());
    }
    let number: i128 = id.parse().ok()?;
    let (low, high) = match datatype.as_str() {
        "UINT64" => (0, u64::MAX.into()),
        "INT64" => (i64::MIN.into(), i64::MAX.into()),
        "UINT32" => (0, u32::MAX.into()),
        "INT32" => (i32::MIN.into(), i32::MAX.into()),
        _ => return None,
    };
    let fits = (low..=high).contains(&number);
    fits.then(|| number.to_le_bytes()[..datatype.width().unwrap_or(0)].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize]) -> NamedTensor {
        let bytes = 4 * shape.iter().product::<usize>();
        NamedTensor::new("x", Datatype::Fp32, shape, Bytes::from(vec![0; bytes])).expect("filled")
    }

    #[test]
    fn a_tensor_takes_its_other_shape_and_comes_back() {
        for (dims, reshape, batched, outer, inner) in [
            (vec![3, 2], vec![1, 3, 2], false, &[3, 2][..], &[1, 3, 2][..]),
            (vec![1], vec![], true, &[5, 1], &[5]),
            (vec![-1, 2], vec![2, -1], true, &[4, 3, 2], &[4, 2, 3]),
        ] {
            let (dims, reshape) = (Some(dims), Some(reshape));
            let declared =
                [DeclaredTensor { name: "x".into(), dims, reshape, ..Default::default() }];
            let sent = reshaped(&tensor(outer), &declared, batched, TensorWay::In).expect("fits");
            assert_eq!(sent.shape(), inner);
            let back = reshaped(&sent, &declared, batched, TensorWay::Out).expect("fits");
            assert_eq!(back.shape(), outer);
        }
        let declared = [DeclaredTensor {
            name: "x".into(),
            dims: Some(vec![2]),
            reshape: Some(vec![3]),
            ..Default::default()
        }];
        assert!(reshaped(&tensor(&[2]), &declared, false, TensorWay::In).is_err());
    }

    #[test]
    fn controls_have_a_value_for_each_row() {
        let control = |kind, datatype: &str| DeclaredControl {
            name: "c".into(),
            kind,
            datatype: datatype.into(),
            values: [0.0, 1.0],
            line: 1,
        };
        let sequence = SequenceRef { id: "7".into(), starts: true, ends: false };
        let made = |kind, datatype| control_tensor(&control(kind, datatype), &sequence, Some(2));
        let start = made(ControlKind::Start, "INT32").expect("made");
        assert_eq!(
            (start.shape(), &start.data()[..]),
            (&[2, 1][..], &[1, 0, 0, 0, 1, 0, 0, 0][..])
        );
        let end = made(ControlKind::End, "BOOL").expect("made");
        assert_eq!(&end.data()[..], &[0, 0]);
        let id = made(ControlKind::CorrelationId, "UINT64").expect("made");
        assert_eq!(id.data().len(), 16);
        let text = SequenceRef { id: "a".into(), starts: false, ends: true };
        let wrong = control_tensor(&control(ControlKind::CorrelationId, "UINT64"), &text, None);
        assert!(wrong.is_err());
        let named = control_tensor(&control(ControlKind::CorrelationId, "BYTES"), &text, None);
        assert_eq!(&named.expect("made").data()[..], b"\x01\0\0\0a");
    }
}
