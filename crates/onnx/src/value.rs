//! Between our tensors and the engine's: the one file that changes its words when rten does.
//! It never copies a request that rides alone, and never trusts the engine's memory order.

use rten::{Value, ValueView};
use rten_tensor::Layout;

use super::tensor::{Data, Tensor};
use jitney_engine::local::Datatype;
use jitney_engine::local::TensorSpec;

/// The engine's element types in the protocol's words, for files that do not declare their own.
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

/// A tensor as the engine reads it, without a copy.
pub(super) fn view(tensor: &Tensor) -> Option<ValueView<'_>> {
    match tensor.data() {
        Data::F32(data) => ValueView::from_shape(tensor.shape(), data).ok(),
        Data::I32(data) => ValueView::from_shape(tensor.shape(), data).ok(),
        Data::I8(data) => ValueView::from_shape(tensor.shape(), data).ok(),
        Data::U8(data) => ValueView::from_shape(tensor.shape(), data).ok(),
    }
}

/// What the engine gave for an output, in the type that the model declares for it.
pub(super) fn tensor(value: Value, port: &TensorSpec) -> Option<Tensor> {
    let (shape, data) = match value {
        Value::FloatTensor(values) => (values.shape().to_vec(), Data::F32(values.into_data())),
        Value::Int32Tensor(values) => (values.shape().to_vec(), Data::I32(values.into_data())),
        Value::Int8Tensor(values) => (values.shape().to_vec(), Data::I8(values.into_data())),
        Value::UInt8Tensor(values) => (values.shape().to_vec(), Data::U8(values.into_data())),
        // Sequences have no place in the protocol, nor has what the engine may learn later.
        Value::Sequence(_) | _ => return None,
    };
    Tensor::new(named(port.datatype, &data), shape, data)
}

/// The declared type where the engine kept to it, the engine's own where it did not.
fn named(declared: Datatype, data: &Data) -> Datatype {
    let held = match data {
        Data::F32(_) => Datatype::Fp32,
        Data::I32(_) if declared == Datatype::Bool => Datatype::Bool,
        Data::I32(_) => Datatype::Int32,
        Data::I8(_) => Datatype::Int8,
        Data::U8(_) => Datatype::Uint8,
    };
    if held.admits(declared) { declared } else { held }
}
