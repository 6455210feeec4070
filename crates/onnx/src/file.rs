//! What is read of an ONNX file before an engine loads it: whether it is well-formed, and what it
//! declares of its inputs and outputs, which is the same for every engine.
//!
//! rten 0.27 does not survive every file: a number of ten or more continued bytes makes it loop for
//! ever, and deeply nested messages overflow its stack, which no `catch_unwind` catches.

use std::collections::HashSet;
use std::path::Path;

use jitney_engine::local::Dim;
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

/// What a file declares.
#[derive(Debug, Default)]
pub(super) struct FileGraph {
    /// The inputs that have no value of their own in the file.
    pub inputs: Vec<DeclaredValue>,
    pub outputs: Vec<DeclaredValue>,
    /// Whether values lie in files of their own.
    pub weights_apart: bool,
}

/// An input or output.
#[derive(Debug)]
pub(super) struct DeclaredValue {
    pub name: String,
    pub kind: ValueKind,
}

/// What an input or output is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// A tensor; its type and its shape may be left unsaid.
    Tensor { datatype: Option<Datatype>, shape: Option<Vec<Dim>> },
    /// A list of values.
    Sequence(Box<ValueKind>),
    /// Values by their keys.
    Map { key: Option<Datatype>, value: Option<Datatype> },
    /// A value that may be absent.
    Optional(Box<ValueKind>),
    /// The file does not say, or says something that no engine knows.
    Unknown,
}

/// Reads what a file declares.
pub(super) fn graph(file: &[u8]) -> FileGraph {
    // ModelProto.graph
    let graph = block(file, 7).unwrap_or_default();
    let mut declared = FileGraph::default();
    let mut constants = HashSet::new();
    let mut unnamed = 0;
    for (number, field) in fields(graph) {
        let Some(content) = field.block() else { continue };
        match number {
            // GraphProto.initializer, its TensorProto.name and external_data
            5 => {
                constants.extend(block(content, 8));
                declared.weights_apart |= block(content, 13).is_some();
            }
            11 => declared.inputs.extend(value_info(content, &mut unnamed)),
            12 => declared.outputs.extend(value_info(content, &mut unnamed)),
            _ => {}
        }
    }
    declared.inputs.retain(|input| !constants.contains(input.name.as_bytes()));
    declared
}

/// A ValueInfoProto: its name and type.
fn value_info(info: &[u8], unnamed: &mut usize) -> Option<DeclaredValue> {
    let name = std::str::from_utf8(block(info, 1)?).ok()?.to_owned();
    let kind = block(info, 2).map_or(ValueKind::Unknown, |kind| value_kind(kind, unnamed, 4));
    Some(DeclaredValue { name, kind })
}

/// A TypeProto.
fn value_kind(kind: &[u8], unnamed: &mut usize, depth: usize) -> ValueKind {
    let Some(depth) = depth.checked_sub(1) else { return ValueKind::Unknown };
    for (number, field) in fields(kind) {
        let Some(content) = field.block() else { continue };
        let mut inner = |field| match block(content, field) {
            Some(kind) => Box::new(value_kind(kind, unnamed, depth)),
            None => Box::new(ValueKind::Unknown),
        };
        return match number {
            // Tensor: elem_type and shape
            1 => ValueKind::Tensor {
                datatype: number_of(content, 1).and_then(datatype),
                shape: block(content, 2).map(|shape| dims(shape, unnamed)),
            },
            4 => ValueKind::Sequence(inner(1)),
            5 => ValueKind::Map {
                key: number_of(content, 1).and_then(datatype),
                value: match *inner(2) {
                    ValueKind::Tensor { datatype, .. } => datatype,
                    ValueKind::Sequence(_)
                    | ValueKind::Map { .. }
                    | ValueKind::Optional(_)
                    | ValueKind::Unknown => None,
                },
            },
            9 => ValueKind::Optional(inner(1)),
            _ => continue,
        };
    }
    ValueKind::Unknown
}

/// Whether the file has operators of classical machine learning, of which the built-in engine knows none.
/// What cannot be read needs nothing.
pub fn needs_runtime(path: &Path) -> bool {
    let file = std::fs::read(path).unwrap_or_default();
    let nodes = block(&file, 7).into_iter().flat_map(fields);
    let mut nodes = nodes.filter(|(number, _)| *number == 1).filter_map(|(_, node)| node.block());
    nodes.any(|node| block(node, 7) == Some(b"ai.onnx.ml"))
}

/// How Paddle's exporter calls every dimension that it does not know.
const UNKNOWN_NAME: &str = "?";

/// A TensorShapeProto. Dimensions without a size and a name get a name that no other has.
fn dims(shape: &[u8], unnamed: &mut usize) -> Vec<Dim> {
    let dims = fields(shape).filter(|(number, _)| *number == 1);
    let named = |name: &&str| !["", UNKNOWN_NAME].contains(name);
    dims.map(|(_, dim)| {
        let dim = dim.block().unwrap_or_default();
        let size = number_of(dim, 1).and_then(|size| usize::try_from(size as i64).ok());
        let name = block(dim, 2).and_then(|name| std::str::from_utf8(name).ok());
        match (size.filter(|size| *size > 0), name.filter(named)) {
            (Some(size), _) => Dim::Fixed(size),
            (None, Some(name)) => Dim::Open(name.to_owned()),
            (None, None) => {
                *unnamed += 1;
                Dim::Open(format!("unnamed_{unnamed}"))
            }
        }
    })
    .collect()
}

/// `TensorProto.DataType` of onnx.proto, as far as it can be served.
fn datatype(element: u64) -> Option<Datatype> {
    match element {
        1 => Some(Datatype::Fp32),
        2 => Some(Datatype::Uint8),
        3 => Some(Datatype::Int8),
        4 => Some(Datatype::Uint16),
        5 => Some(Datatype::Int16),
        6 => Some(Datatype::Int32),
        7 => Some(Datatype::Int64),
        8 => Some(Datatype::Bytes),
        9 => Some(Datatype::Bool),
        10 => Some(Datatype::Fp16),
        11 => Some(Datatype::Fp64),
        12 => Some(Datatype::Uint32),
        13 => Some(Datatype::Uint64),
        16 => Some(Datatype::Bf16),
        _ => None,
    }
}

/// The first number under this field.
fn number_of(message: &[u8], requested: u64) -> Option<u64> {
    fields(message).find_map(|(number, field)| match field {
        Field::Number(value) if number == requested => Some(value),
        Field::Number(_) | Field::Block(_) | Field::Fixed => None,
    })
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
    fn a_file_tells_its_inputs_and_outputs() {
        let graph = graph(include_bytes!("testdata/length.onnx"));
        let open = |name: &str| Dim::Open(name.to_owned());
        let expected = ValueKind::Tensor {
            datatype: Some(Datatype::Int64),
            shape: Some(vec![open("batch"), open("length")]),
        };
        assert_eq!((graph.inputs[0].name.as_str(), &graph.inputs[0].kind), ("ids", &expected));
        let names: Vec<_> = graph.outputs.iter().map(|output| output.name.as_str()).collect();
        assert_eq!(names, ["twice", "positive"]);
    }

    #[test]
    fn sequences_maps_and_unnamed_dimensions_are_told_apart() {
        let tensor = |element: u8, shape: &[u8]| block(1, &[&[8, element], shape].concat());
        let map = block(5, &[&[8, 7][..], &block(2, &tensor(1, &[]))].concat());
        let question = || block(1, &block(2, b"?"));
        let open = |number: u32| Dim::Open(format!("unnamed_{number}"));
        let kinds = [
            (
                tensor(
                    1,
                    &block(2, &[block(1, &[8, 3]), block(1, &[]), question(), question()].concat()),
                ),
                ValueKind::Tensor {
                    datatype: Some(Datatype::Fp32),
                    shape: Some(vec![Dim::Fixed(3), open(1), open(2), open(3)]),
                },
            ),
            (tensor(8, &[]), ValueKind::Tensor { datatype: Some(Datatype::Bytes), shape: None }),
            (
                block(4, &block(1, &map)),
                ValueKind::Sequence(Box::new(ValueKind::Map {
                    key: Some(Datatype::Int64),
                    value: Some(Datatype::Fp32),
                })),
            ),
            (Vec::new(), ValueKind::Unknown),
        ];
        for (bytes, expected) in kinds {
            assert_eq!(value_kind(&bytes, &mut 0, 4), expected);
        }
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
