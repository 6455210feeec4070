//! Reads the element types that an ONNX file declares for its inputs and outputs.
//!
//! The engine folds 64-bit integers and truth values into 32-bit integers and forgets which was
//! which; clients of the Open Inference Protocol send and expect the declared names. So this file
//! walks just as much of the protobuf as leads there. It judges nothing: a file that it cannot read
//! yields no types, and whether the model loads is the engine's word.

use std::collections::HashMap;

use super::protobuf::{self, Field};
use jitney_engine::local::Datatype;

/// Field numbers of onnx.proto.
const MODEL_GRAPH: u64 = 7;
const GRAPH_INPUT: u64 = 11;
const GRAPH_OUTPUT: u64 = 12;
const VALUE_NAME: u64 = 1;
const VALUE_TYPE: u64 = 2;
const TYPE_TENSOR: u64 = 1;
const TENSOR_ELEMENT: u64 = 1;

/// The declared element type of every graph input and output, by name.
pub(super) fn datatypes(file: &[u8]) -> HashMap<String, Datatype> {
    let graph = block(file, MODEL_GRAPH).unwrap_or_default();
    fields(graph)
        .filter(|(number, _)| [GRAPH_INPUT, GRAPH_OUTPUT].contains(number))
        .filter_map(|(_, field)| field.block().and_then(value_info))
        .collect()
}

fn value_info(info: &[u8]) -> Option<(String, Datatype)> {
    let name = std::str::from_utf8(block(info, VALUE_NAME)?).ok()?;
    let tensor = block(block(info, VALUE_TYPE)?, TYPE_TENSOR)?;
    let element = fields(tensor).find_map(|(number, field)| match field {
        Field::Number(element) if number == TENSOR_ELEMENT => Some(element),
        Field::Number(_) | Field::Block(_) | Field::Fixed => None,
    })?;
    Some((name.to_owned(), datatype(element)?))
}

/// `TensorProto.DataType` of onnx.proto, as far as it can be served.
fn datatype(element: u64) -> Option<Datatype> {
    match element {
        1 => Some(Datatype::Fp32),
        2 => Some(Datatype::Uint8),
        3 => Some(Datatype::Int8),
        6 => Some(Datatype::Int32),
        7 => Some(Datatype::Int64),
        9 => Some(Datatype::Bool),
        10 => Some(Datatype::Fp16),
        11 => Some(Datatype::Fp64),
        _ => None,
    }
}

/// The first field of this number that carries its length.
fn block(message: &[u8], wanted: u64) -> Option<&[u8]> {
    fields(message).find_map(|(number, field)| field.block().filter(|_| number == wanted))
}

/// The fields up to the end of the message or to its first error.
fn fields(message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    protobuf::fields(message).map_while(Result::ok)
}
