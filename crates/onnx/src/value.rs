//! Converts between our tensors and rten's. A request that is alone in its batch is not copied.

use rten::{Value, ValueView};
use rten_tensor::Layout;

use super::tensor::{Tensor, TensorData};
use jitney_engine::local::Datatype;
use jitney_engine::local::TensorSpec;

/// rten's element types by the protocol's names, for files that do not declare their own.
pub(super) fn datatype(of: rten::DataType) -> Option<Datatype> {
    match of {
        rten::DataType::Float => Some(Datatype::Fp32),
        rten::DataType::Int32 => Some(Datatype::Int32),
        rten::DataType::Int8 => Some(Datatype::Int8),
        rten::DataType::UInt8 => Some(Datatype::Uint8),
        // The enum may grow; a type that we cannot name is a model that we cannot serve.
        _ => None,
    }
}

/// A tensor as rten reads it, without a copy.
pub(super) fn view(tensor: &Tensor) -> Option<ValueView<'_>> {
    match tensor.data() {
        TensorData::F32(data) => ValueView::from_shape(tensor.shape(), data).ok(),
        TensorData::I32(data) => ValueView::from_shape(tensor.shape(), data).ok(),
        TensorData::I8(data) => ValueView::from_shape(tensor.shape(), data).ok(),
        TensorData::U8(data) => ValueView::from_shape(tensor.shape(), data).ok(),
    }
}

/// What rten gave for an output, in the type that the model declares for it.
pub(super) fn tensor(value: Value, spec: &TensorSpec) -> Option<Tensor> {
    let (shape, data) = match value {
        Value::FloatTensor(values) => {
            (values.shape().to_vec(), TensorData::F32(values.into_data()))
        }
        Value::Int32Tensor(values) => {
            (values.shape().to_vec(), TensorData::I32(values.into_data()))
        }
        Value::Int8Tensor(values) => (values.shape().to_vec(), TensorData::I8(values.into_data())),
        Value::UInt8Tensor(values) => (values.shape().to_vec(), TensorData::U8(values.into_data())),
        // Sequences have no place in the protocol, nor has what rten may add later.
        Value::Sequence(_) | _ => return None,
    };
    Tensor::new(named(spec.datatype, &data), shape, data)
}

/// The declared type where rten kept to it, rten's own where it did not.
fn named(declared: Datatype, data: &TensorData) -> Datatype {
    let held = match data {
        TensorData::F32(_) => Datatype::Fp32,
        TensorData::I32(_) if declared == Datatype::Bool => Datatype::Bool,
        TensorData::I32(_) => Datatype::Int32,
        TensorData::I8(_) => Datatype::Int8,
        TensorData::U8(_) => Datatype::Uint8,
    };
    if held.admits(declared) { declared } else { held }
}
