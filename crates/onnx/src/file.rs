//! What is read of an ONNX file before rten loads it: whether it is well-formed, and the element types
//! that it declares.
//!
//! rten 0.27 does not survive every file: a number of ten or more continued bytes makes it loop for
//! ever, and deeply nested messages overflow its stack, which no `catch_unwind` catches. It also folds
//! 64-bit integers and truth values into 32-bit integers, while clients of the Open Inference Protocol
//! send and expect the declared types.

use std::collections::HashMap;

use jitney_engine::tensors::Datatype;

use super::protobuf::{self, Field, Malformed};

/// Graphs inside graphs cost three levels each; real models have a few.
const DEPTH_MAX: usize = 64;

/// The messages of onnx.proto that rten reads.
#[derive(Clone, Copy)]
enum OnnxMessage {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    ValueInfo,
    Type,
    TensorType,
    Sequence,
    Shape,
    /// Holds numbers and text only: dimension, operator set, string pair.
    Leaf,
    /// No message but packed numbers.
    Numbers,
}

/// Whether the file is a well-formed ONNX message of bearable depth.
pub(super) fn check(file: &[u8]) -> Result<(), Malformed> {
    message(file, OnnxMessage::Model, DEPTH_MAX)
}

fn message(bytes: &[u8], kind: OnnxMessage, depth: usize) -> Result<(), Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    for field in protobuf::fields(bytes) {
        let (number, Field::Block(block)) = field? else { continue };
        match kind.inner(number) {
            Some(OnnxMessage::Numbers) if protobuf::is_packed_numbers(block) => {}
            Some(OnnxMessage::Numbers) => return Err(Malformed),
            Some(kind) => message(block, kind, depth)?,
            None => {}
        }
    }
    Ok(())
}

impl OnnxMessage {
    /// What a field that carries its length holds, by the field numbers of onnx.proto. rten skips fields
    /// that are not listed.
    fn inner(self, field: u64) -> Option<Self> {
        Some(match (self, field) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Graph, 1) => Self::Node,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) => Self::Tensor,
            (Self::Graph, 11..=13) => Self::ValueInfo,
            (Self::Node, 5) => Self::Attribute,
            (Self::ValueInfo, 2) | (Self::Sequence, 1) => Self::Type,
            (Self::Type, 1) => Self::TensorType,
            (Self::Type, 4) => Self::Sequence,
            (Self::TensorType, 2) => Self::Shape,
            (Self::Model, 8 | 14) | (Self::Tensor, 13) | (Self::Shape, 1) => Self::Leaf,
            (Self::Attribute, 8) | (Self::Tensor, 1 | 5 | 7 | 11) => Self::Numbers,
            _ => return None,
        })
    }
}

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
fn block(message: &[u8], requested: u64) -> Option<&[u8]> {
    fields(message).find_map(|(number, field)| field.block().filter(|_| number == requested))
}

/// The fields up to the end of the message or to its first error.
fn fields(message: &[u8]) -> impl Iterator<Item = (u64, Field<'_>)> {
    protobuf::fields(message).map_while(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that carries its length.
    fn block(number: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        [&[number << 3 | 2, 0x80 | (length & 0x7f) as u8, (length >> 7) as u8], content].concat()
    }

    #[test]
    fn real_models_are_well_formed() {
        assert_eq!(check(include_bytes!("testdata/pair.onnx")), Ok(()));
        assert_eq!(check(include_bytes!("testdata/length.onnx")), Ok(()));
    }

    #[test]
    fn an_endless_number_is_found_at_any_depth() {
        assert_eq!(check(&[0xff; 64]), Err(Malformed));
        let in_dims = block(7, &block(5, &block(1, &[0xff; 64])));
        assert_eq!(check(&in_dims), Err(Malformed));
        let in_raw_data = block(7, &block(5, &block(9, &[0xff; 64])));
        assert_eq!(check(&in_raw_data), Ok(()), "weights are any bytes");
    }

    #[test]
    fn graphs_nested_without_end_are_rejected() {
        let nest = |graphs| {
            let inner = |graph: Vec<u8>, _| block(1, &block(5, &block(6, &graph)));
            block(7, &(0..graphs).fold(Vec::new(), inner))
        };
        assert_eq!(check(&nest(5)), Ok(()));
        assert_eq!(check(&nest(40)), Err(Malformed));
    }
}
