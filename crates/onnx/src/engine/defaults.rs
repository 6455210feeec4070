//! Attributes that a file may leave to their defaults but rten 0.27 wants to see: strides, dilations and
//! pads of convolutions and pools. The file's bytes are written anew with them, where any are missing.

use super::super::protobuf::{self, Field};

/// An attribute, its default, and how many of that for each dimension of the kernel.
type AttributeDefault = (&'static str, u64, usize);

const STRIDES: AttributeDefault = ("strides", 1, 1);
const DILATIONS: AttributeDefault = ("dilations", 1, 1);
const PADS: AttributeDefault = ("pads", 0, 2);

/// Operators with their attributes.
const OPERATORS: [(&str, &[AttributeDefault]); 4] = [
    ("Conv", &[STRIDES, DILATIONS, PADS]),
    ("ConvTranspose", &[STRIDES, DILATIONS, PADS]),
    ("MaxPool", &[STRIDES, PADS]),
    ("AveragePool", &[STRIDES, PADS]),
];

/// The file with what is missing; `None` where nothing is, or where its weights are in other files, which
/// only the file as it is can name.
pub(super) fn filled(file: &[u8]) -> Option<Vec<u8>> {
    let graph = block(file, 7)?;
    let weights: Vec<GraphConstant<'_>> = blocks(graph, 5).map(GraphConstant::read).collect();
    if weights.iter().any(|weight| weight.elsewhere) {
        return None;
    }
    let mut changed = false;
    let mut nodes = Vec::with_capacity(graph.len() + 1024);
    for field in protobuf::fields(graph) {
        let (number, field) = field.ok()?;
        match field {
            Field::Block(node) if number == 1 => match node_with_defaults(node, &weights) {
                Some(node) => {
                    changed = true;
                    put_block(1, &node, &mut nodes);
                }
                None => put_block(1, node, &mut nodes),
            },
            Field::Block(other) => put_block(number, other, &mut nodes),
            Field::Number(value) => put_number_field(number, value, &mut nodes),
            // No field of a graph is of this type.
            Field::Fixed => return None,
        }
    }
    if !changed {
        return None;
    }
    let mut model = Vec::with_capacity(file.len() + 1024);
    for field in protobuf::fields(file) {
        match field.ok()? {
            (7, Field::Block(_)) => put_block(7, &nodes, &mut model),
            (number, Field::Block(other)) => put_block(number, other, &mut model),
            (number, Field::Number(value)) => put_number_field(number, value, &mut model),
            (_, Field::Fixed) => return None,
        }
    }
    Some(model)
}

/// What is known of a weight.
struct GraphConstant<'a> {
    name: &'a [u8],
    rank: usize,
    elsewhere: bool,
}

impl<'a> GraphConstant<'a> {
    /// A TensorProto: dims, data_location, name.
    fn read(tensor: &'a [u8]) -> Self {
        let mut weight =
            Self { name: block(tensor, 8).unwrap_or_default(), rank: 0, elsewhere: false };
        for (number, field) in protobuf::fields(tensor).map_while(Result::ok) {
            match (number, field) {
                (1, Field::Number(_)) => weight.rank += 1,
                (1, Field::Block(packed)) => {
                    // A number ends with a byte below 128.
                    weight.rank += packed.iter().filter(|byte| **byte < 0x80).count();
                }
                (14, Field::Number(place)) => weight.elsewhere = place == 1,
                _ => {}
            }
        }
        weight
    }
}

/// The node with the attributes that it lacks.
fn node_with_defaults(node: &[u8], weights: &[GraphConstant<'_>]) -> Option<Vec<u8>> {
    let operator = block(node, 4)?;
    let (_, wanted) = OPERATORS.iter().find(|(name, _)| name.as_bytes() == operator)?;
    if block(node, 7).is_some_and(|domain| !domain.is_empty() && domain != b"ai.onnx") {
        return None;
    }
    let has = |name: &str| blocks(node, 5).any(|it| block(it, 1) == Some(name.as_bytes()));
    // Pads that are found out are not given.
    let missing =
        wanted.iter().filter(|(name, ..)| !(has(name) || *name == "pads" && has("auto_pad")));
    let missing: Vec<_> = missing.collect();
    if missing.is_empty() {
        return None;
    }
    let rank = kernel_rank(node, weights)?;
    let mut filled = node.to_vec();
    for (name, value, times) in missing {
        let mut attribute = Vec::new();
        put_block(1, name.as_bytes(), &mut attribute);
        (0..rank * times).for_each(|_| put_number_field(8, *value, &mut attribute));
        // AttributeProto.type: INTS
        put_number_field(20, 7, &mut attribute);
        put_block(5, &attribute, &mut filled);
    }
    Some(filled)
}

/// The dimensions of a kernel: as its attribute says, or those of the weight without the two of channels.
fn kernel_rank(node: &[u8], weights: &[GraphConstant<'_>]) -> Option<usize> {
    let shape = blocks(node, 5).find(|it| block(it, 1) == Some(b"kernel_shape"));
    if let Some(shape) = shape {
        let sizes = protobuf::fields(shape).map_while(Result::ok).map(|field| match field {
            (8, Field::Number(_)) => 1,
            (8, Field::Block(packed)) => packed.iter().filter(|byte| **byte < 0x80).count(),
            _ => 0,
        });
        return Some(sizes.sum());
    }
    let weight = blocks(node, 1).nth(1)?;
    weights.iter().find(|it| it.name == weight)?.rank.checked_sub(2)
}

fn blocks(message: &[u8], wanted: u64) -> impl Iterator<Item = &[u8]> {
    let fields = protobuf::fields(message).map_while(Result::ok);
    fields.filter_map(move |(number, field)| field.block().filter(|_| number == wanted))
}

fn block(message: &[u8], wanted: u64) -> Option<&[u8]> {
    blocks(message, wanted).next()
}

fn put_number(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_number_field(number: u64, value: u64, out: &mut Vec<u8>) {
    put_number(number << 3, out);
    put_number(value, out);
}

fn put_block(number: u64, content: &[u8], out: &mut Vec<u8>) {
    put_number(number << 3 | 2, out);
    put_number(content.len() as u64, out);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(blocks: &[(u64, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        blocks.iter().for_each(|(number, content)| put_block(*number, content, &mut out));
        out
    }

    #[test]
    fn missing_strides_and_dilations_are_written_and_nothing_else_changes() {
        let dims = |ranks: usize| {
            (0..ranks).fold(Vec::new(), |mut out, _| {
                put_number_field(1, 3, &mut out);
                out
            })
        };
        let weight = [dims(4), put(&[(8, b"w")])].concat();
        let ints = |name: &[u8], value: u64, times: usize| {
            let mut out = put(&[(1, name)]);
            (0..times).for_each(|_| put_number_field(8, value, &mut out));
            put_number_field(20, 7, &mut out);
            out
        };
        let bare = put(&[(1, b"x"), (1, b"w"), (2, b"y"), (4, b"Conv")]);
        let given = [ints(b"strides", 1, 2), ints(b"dilations", 1, 2), ints(b"pads", 0, 4)];
        let whole = [&bare[..], &put(&given.each_ref().map(|it| (5, &it[..])))].concat();
        let other = put(&[(1, b"y"), (2, b"z"), (4, b"Relu")]);
        let model =
            |node: &[u8]| put(&[(2, b"me"), (7, &put(&[(1, node), (1, &other), (5, &weight)]))]);
        assert_eq!(filled(&model(&bare)), Some(model(&whole)));
        assert_eq!(filled(&model(&whole)), None, "nothing is missing");
        let mut elsewhere = weight.clone();
        put_number_field(14, 1, &mut elsewhere);
        assert_eq!(filled(&put(&[(7, &put(&[(1, &bare), (5, &elsewhere)]))])), None);
        assert_eq!(filled(b"no model"), None);
    }
}
