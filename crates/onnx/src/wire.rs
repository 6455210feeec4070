//! Requests and tensors as bytes, between the server and a worker process: the items of
//! `protocol/spec.md` for ONNX workers. What is read is checked like anything else that crosses a
//! process: bytes that do not add up are `None`, never a panic.

use bytes::{Buf, BufMut, BytesMut};

use jitney_engine::tensors::Datatype;

use super::request::{BodyForm, DecodedRequest, TensorInput};
use super::tensor::{Rows, Tensor, TensorData};

/// The position of a type here is its number in the frames.
const DATATYPES: [Datatype; 8] = [
    Datatype::Bool,
    Datatype::Uint8,
    Datatype::Int8,
    Datatype::Int32,
    Datatype::Int64,
    Datatype::Fp16,
    Datatype::Fp32,
    Datatype::Fp64,
];

const FORM_PLAIN: u8 = 0;
const FORM_OPEN_INFERENCE: u8 = 1;
const FORM_TENSORS: u8 = 2;

const FLAG_BARE: u8 = 1;
const FLAG_ID: u8 = 2;

/// Writes how a request, or a part of one, is to be answered, and the shapes of its tensors.
pub(super) fn put_meta(input: &TensorInput, out: &mut BytesMut) {
    let request = &*input.shared;
    let (form, id, outputs): (u8, Option<&str>, &[usize]) = match &request.form {
        // The server joins the outputs of parts, wherever they ran.
        _ if input.part.is_some() => (FORM_TENSORS, None, &[]),
        BodyForm::Tensors => (FORM_TENSORS, None, &[]),
        BodyForm::Plain => (FORM_PLAIN, None, &[]),
        BodyForm::OpenInference { id, outputs } => (FORM_OPEN_INFERENCE, id.as_deref(), outputs),
    };
    let flags = if request.bare { FLAG_BARE } else { 0 } | if id.is_some() { FLAG_ID } else { 0 };
    out.put_u8(form);
    out.put_u8(flags);
    out.put_u16_le(0);
    out.put_u32_le(input.rows().len() as u32);
    let id = id.unwrap_or_default();
    out.put_u32_le(id.len() as u32);
    out.put_u32_le(outputs.len() as u32);
    out.put_slice(id.as_bytes());
    outputs.iter().for_each(|output| out.put_u32_le(*output as u32));
    put_shapes(rows_of(input), out);
}

/// Writes the shapes and elements of its tensors.
pub(super) fn put_identity(input: &TensorInput, out: &mut BytesMut) {
    put_shapes(rows_of(input), out);
    put_body(input, out);
}

/// Writes the elements of its tensors.
pub(super) fn put_body(input: &TensorInput, out: &mut BytesMut) {
    rows_of(input).for_each(|rows| put_elements(rows, out));
}

/// The rows of each tensor that are run here.
fn rows_of(input: &TensorInput) -> impl ExactSizeIterator<Item = Rows<'_>> {
    input.shared.tensors.iter().map(|tensor| match &input.part {
        Some(part) => (tensor, part.rows.clone()),
        None => tensor.all_rows(),
    })
}

/// Reads a request as the server wrote it.
pub(super) fn request(mut meta: &[u8], body: &[u8]) -> Option<TensorInput> {
    let (form, flags) = (meta.try_get_u8().ok()?, meta.try_get_u8().ok()?);
    meta.try_get_u16_le().ok()?;
    let items = meta.try_get_u32_le().ok()?;
    let (id, outputs) = (meta.try_get_u32_le().ok()?, meta.try_get_u32_le().ok()?);
    let id = std::str::from_utf8(take(&mut meta, id as usize)?).ok()?;
    let (outputs, _) = take(&mut meta, (outputs as usize).checked_mul(4)?)?.as_chunks::<4>();
    let form = match form {
        FORM_PLAIN => BodyForm::Plain,
        FORM_TENSORS => BodyForm::Tensors,
        FORM_OPEN_INFERENCE => BodyForm::OpenInference {
            id: (flags & FLAG_ID != 0).then(|| id.to_owned()),
            outputs: outputs.iter().map(|output| u32::from_le_bytes(*output) as usize).collect(),
        },
        _ => return None,
    };
    let tensors = tensors(&mut meta, body).filter(|_| meta.is_empty())?;
    let bare = flags & FLAG_BARE != 0;
    Some(DecodedRequest { tensors, items, length: None, form, bare, claim: None }.into())
}

/// The outputs of a part, for the server to join.
pub(super) fn outputs(tensors: &[Tensor]) -> Vec<u8> {
    let mut out = BytesMut::new();
    put_shapes(tensors.iter().map(Tensor::all_rows), &mut out);
    tensors.iter().for_each(|tensor| put_elements(tensor.all_rows(), &mut out));
    out.into()
}

/// Reads what [`outputs`] wrote.
pub(super) fn read_outputs(bytes: &[u8]) -> Option<Vec<Tensor>> {
    let mut elements = bytes;
    shapes(&mut elements)?;
    let mut table = &bytes[..bytes.len() - elements.len()];
    tensors(&mut table, elements)
}

fn put_shapes<'a>(tensors: impl ExactSizeIterator<Item = Rows<'a>>, out: &mut BytesMut) {
    out.put_u32_le(tensors.len() as u32);
    for (tensor, rows) in tensors {
        let datatype = DATATYPES.iter().position(|known| *known == tensor.datatype());
        out.put_u8(datatype.unwrap_or_default() as u8);
        out.put_u32_le(tensor.shape().len() as u32);
        for (axis, size) in tensor.shape().iter().enumerate() {
            out.put_u64_le(if axis == 0 { rows.len() } else { *size } as u64);
        }
    }
}

fn put_elements((tensor, rows): Rows<'_>, out: &mut BytesMut) {
    let width: usize = tensor.shape().iter().skip(1).product();
    let range = rows.start * width..rows.end * width;
    match tensor.data() {
        TensorData::F32(all) => put(&all[range], f32::to_le_bytes, out),
        TensorData::I32(all) => put(&all[range], i32::to_le_bytes, out),
        TensorData::I8(all) => put(&all[range], i8::to_le_bytes, out),
        TensorData::U8(all) => out.put_slice(&all[range]),
    }
}

fn put<T: Copy, const N: usize>(elements: &[T], bytes: impl Fn(T) -> [u8; N], out: &mut BytesMut) {
    let start = out.len();
    out.resize(start + elements.len() * N, 0);
    let (room, _) = out[start..].as_chunks_mut::<N>();
    room.iter_mut().zip(elements).for_each(|(room, element)| *room = bytes(*element));
}

/// The types and shapes of tensors.
fn shapes(table: &mut &[u8]) -> Option<Vec<(Datatype, Vec<usize>)>> {
    let count = table.try_get_u32_le().ok()?;
    let mut shapes = Vec::new();
    for _ in 0..count {
        let datatype = *DATATYPES.get(usize::from(table.try_get_u8().ok()?))?;
        let rank = table.try_get_u32_le().ok()? as usize;
        let (sizes, _) = take(table, rank.checked_mul(8)?)?.as_chunks::<8>();
        let sizes = sizes.iter().map(|size| usize::try_from(u64::from_le_bytes(*size)).ok());
        shapes.push((datatype, sizes.collect::<Option<_>>()?));
    }
    Some(shapes)
}

/// Tensors of these shapes, which use up all the elements.
fn tensors(table: &mut &[u8], mut elements: &[u8]) -> Option<Vec<Tensor>> {
    let tensors = shapes(table)?.into_iter().map(|(datatype, shape)| {
        let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size))?;
        let data = match datatype {
            Datatype::Fp16 | Datatype::Fp32 | Datatype::Fp64 => {
                TensorData::F32(read(&mut elements, count, f32::from_le_bytes)?)
            }
            Datatype::Bool | Datatype::Int32 | Datatype::Int64 => {
                TensorData::I32(read(&mut elements, count, i32::from_le_bytes)?)
            }
            Datatype::Int8 => TensorData::I8(read(&mut elements, count, i8::from_le_bytes)?),
            Datatype::Uint8 => TensorData::U8(take(&mut elements, count)?.to_vec()),
            Datatype::Uint16
            | Datatype::Uint32
            | Datatype::Uint64
            | Datatype::Int16
            | Datatype::Bf16
            | Datatype::Bytes => return None,
        };
        Tensor::new(datatype, shape, data)
    });
    let tensors = tensors.collect::<Option<_>>()?;
    elements.is_empty().then_some(tensors)
}

fn read<T, const N: usize>(
    elements: &mut &[u8],
    count: usize,
    element: impl Fn([u8; N]) -> T,
) -> Option<Vec<T>> {
    let (chunks, _) = take(elements, count.checked_mul(N)?)?.as_chunks::<N>();
    Some(chunks.iter().map(|chunk| element(*chunk)).collect())
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(length)?;
    *bytes = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(input: &TensorInput) -> (BytesMut, BytesMut) {
        let (mut meta, mut body) = (BytesMut::new(), BytesMut::new());
        put_meta(input, &mut meta);
        put_body(input, &mut body);
        (meta, body)
    }

    fn sample(form: BodyForm) -> TensorInput {
        let floats = Tensor::new(Datatype::Fp64, vec![3, 2], TensorData::F32(vec![1.5; 6]));
        let bytes = Tensor::new(Datatype::Uint8, vec![3], TensorData::U8(vec![1, 2, 3]));
        let whole = Tensor::new(Datatype::Int64, vec![3, 1], TensorData::I32(vec![-1, 0, 7]));
        let tensors = [floats, bytes, whole].into_iter().map(|it| it.expect("filled")).collect();
        DecodedRequest { tensors, items: 3, length: None, form, bare: true, claim: None }.into()
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let open = |id: Option<&str>, outputs: &[usize]| BodyForm::OpenInference {
            id: id.map(str::to_owned),
            outputs: outputs.to_vec(),
        };
        for form in
            [BodyForm::Plain, open(None, &[]), open(Some(""), &[2, 0]), open(Some("ä"), &[])]
        {
            let sent = sample(form);
            let (meta, body) = written(&sent);
            let read = request(&meta, &body).expect("sound");
            assert_eq!((&read.shared.form, read.shared.bare), (&sent.shared.form, true));
            assert_eq!((&read.shared.tensors, read.shared.items), (&sent.shared.tensors, 3));
        }
    }

    /// The bytes of `protocol/spec.md`.
    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let form = BodyForm::OpenInference { id: Some("a".to_owned()), outputs: vec![1] };
        let tensor = Tensor::new(Datatype::Int64, vec![1, 2], TensorData::I32(vec![1, -1]));
        let tensors = vec![tensor.expect("filled")];
        let request =
            DecodedRequest { tensors, items: 1, length: None, form, bare: true, claim: None };
        let (meta, body) = written(&request.into());
        let head: &[u8] = &[1, 3, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, b'a', 1, 0, 0, 0];
        let table: &[u8] = &[1, 0, 0, 0, 4, 2, 0, 0, 0];
        let sizes: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(&meta[..], [head, table, sizes].concat());
        assert_eq!(&body[..], [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn a_part_is_sent_with_its_own_rows_and_answered_with_tensors() {
        let parts = sample(BodyForm::Plain).split(2);
        let (meta, body) = written(&parts[1]);
        let read = request(&meta, &body).expect("sound").shared;
        assert_eq!((read.items, &read.form), (1, &BodyForm::Tensors));
        assert_eq!(read.tensors[2].data(), &TensorData::I32(vec![7]));
        assert_eq!(read_outputs(&outputs(&read.tensors)), Some(read.tensors.clone()));
    }

    proptest! {
        /// Whatever bytes come: an answer, and never one that was cut or has something left over.
        #[test]
        fn bytes_that_do_not_add_up_are_refused(
            noise in prop::collection::vec(any::<u8>(), 0..80),
            cut in 1usize..12,
        ) {
            let _ = request(&noise, &noise);
            let _ = read_outputs(&noise);
            let (meta, body) = written(&sample(BodyForm::Plain));
            prop_assert!(request(&meta[..meta.len() - cut], &body).is_none());
            prop_assert!(request(&meta, &body[..body.len() - cut]).is_none());
            let longer = [&body[..], &[0; 4]].concat();
            prop_assert!(request(&meta, &longer).is_none());
        }
    }
}
