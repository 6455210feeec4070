//! Looks through an ONNX file before the engine's loader does, for what that loader does not survive:
//! a number of ten or more continued bytes makes rten 0.27 loop for ever, and messages nested deeply
//! enough would overflow its stack, which no `catch_unwind` catches. Files come from users. Whether
//! a well-formed file makes sense as a model is still the engine's word.

use super::protobuf::{self, Field, Malformed};

/// Graphs inside graphs cost three levels each; real models have a few.
const DEPTH_MAX: usize = 64;

/// The messages of onnx.proto that the engine reads.
#[derive(Clone, Copy)]
enum Message {
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
}

/// What a field that carries its length holds.
enum Inner {
    Message(Message),
    Numbers,
    Opaque,
}

/// Whether the file is a well-formed ONNX message of bearable depth.
pub(super) fn check(file: &[u8]) -> Result<(), Malformed> {
    message(file, Message::Model, DEPTH_MAX)
}

fn message(bytes: &[u8], kind: Message, depth: usize) -> Result<(), Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    for field in protobuf::fields(bytes) {
        let (number, Field::Block(block)) = field? else { continue };
        match kind.inner(number) {
            Inner::Message(kind) => message(block, kind, depth)?,
            Inner::Numbers if !protobuf::is_packed_numbers(block) => return Err(Malformed),
            Inner::Numbers | Inner::Opaque => {}
        }
    }
    Ok(())
}

impl Message {
    /// By the field numbers of onnx.proto. The engine skips fields that are not listed.
    fn inner(self, field: u64) -> Inner {
        match (self, field) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Inner::Message(Self::Graph),
            (Self::Graph, 1) => Inner::Message(Self::Node),
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) => Inner::Message(Self::Tensor),
            (Self::Graph, 11..=13) => Inner::Message(Self::ValueInfo),
            (Self::Node, 5) => Inner::Message(Self::Attribute),
            (Self::ValueInfo, 2) | (Self::Sequence, 1) => Inner::Message(Self::Type),
            (Self::Type, 1) => Inner::Message(Self::TensorType),
            (Self::Type, 4) => Inner::Message(Self::Sequence),
            (Self::TensorType, 2) => Inner::Message(Self::Shape),
            (Self::Model, 8 | 14) | (Self::Tensor, 13) | (Self::Shape, 1) => {
                Inner::Message(Self::Leaf)
            }
            (Self::Attribute, 8) | (Self::Tensor, 1 | 5 | 7 | 11) => Inner::Numbers,
            _ => Inner::Opaque,
        }
    }
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
    fn graphs_nested_without_end_are_refused() {
        let nest = |graphs| {
            let inner = |graph: Vec<u8>, _| block(1, &block(5, &block(6, &graph)));
            block(7, &(0..graphs).fold(Vec::new(), inner))
        };
        assert_eq!(check(&nest(5)), Ok(()));
        assert_eq!(check(&nest(40)), Err(Malformed));
    }
}
