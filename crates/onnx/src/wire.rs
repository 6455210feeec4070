//! Requests and tensors as bytes, between the server and a worker process: the items of
//! `protocol/spec.md` for ONNX workers. What is read is checked like anything else that crosses a
//! process: bytes that do not add up are `None`, never a panic. Tensors lie in the frame as an engine
//! reads them, so that they are run where they arrived.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use jitney_engine::tensors::{Datatype, NamedTensor};

use super::request::{BodyForm, DecodedRequest, TensorInput};
use super::tensor::Tensor;

/// The position of a type here is its number in the frames.
const DATATYPES: [Datatype; 14] = [
    Datatype::Bool,
    Datatype::Uint8,
    Datatype::Int8,
    Datatype::Int32,
    Datatype::Int64,
    Datatype::Fp16,
    Datatype::Fp32,
    Datatype::Fp64,
    Datatype::Uint16,
    Datatype::Uint32,
    Datatype::Uint64,
    Datatype::Int16,
    Datatype::Bf16,
    Datatype::Bytes,
];

const FORM_PLAIN: u8 = 0;
const FORM_RAW: u8 = 1;
const FORM_TENSORS: u8 = 2;

const FLAG_BARE: u8 = 1;

/// Tensors begin at multiples of this in a body, and bodies in a frame.
const ALIGNMENT: usize = 16;

/// The type, the shape and the elements of a tensor.
type RawTensor<'a> = (Datatype, &'a [usize], &'a [u8]);

/// Writes how a request, or a part of one, is to be answered, and the shapes of its tensors.
pub(super) fn put_meta(input: &TensorInput, out: &mut BytesMut) {
    let request = &*input.shared;
    let (form, outputs): (u8, &[usize]) = match &request.form {
        // The server joins the outputs of parts, wherever they ran.
        _ if input.part.is_some() => (FORM_TENSORS, &[]),
        BodyForm::Tensors { outputs } => (FORM_TENSORS, outputs),
        // The server writes the protocol's JSON.
        BodyForm::OpenInference { .. } => (FORM_TENSORS, &[]),
        BodyForm::Plain if request.raw.is_some() => (FORM_RAW, &[]),
        BodyForm::Plain => (FORM_PLAIN, &[]),
    };
    out.put_u8(form);
    out.put_u8(if request.bare { FLAG_BARE } else { 0 });
    out.put_u16_le(0);
    out.put_u32_le(input.rows().len() as u32);
    out.put_u32_le(outputs.len() as u32);
    outputs.iter().for_each(|output| out.put_u32_le(*output as u32));
    put_table(&rows_of(input), out);
    align(out);
}

/// Writes what the model gets of it.
pub(super) fn put_identity(input: &TensorInput, out: &mut BytesMut) {
    put_table(&rows_of(input), out);
    put_body(input, out);
}

/// Writes the elements of its tensors, or its raw body.
pub(super) fn put_body(input: &TensorInput, out: &mut BytesMut) {
    match &input.shared.raw {
        Some(raw) => out.put_slice(raw),
        None => put_elements(rows_of(input).iter().map(|tensor| &tensor.data()[..]), out),
    }
}

/// The rows of each tensor that are run here.
fn rows_of(input: &TensorInput) -> Vec<Tensor> {
    let tensors = input.shared.tensors.iter();
    match &input.part {
        Some(part) => tensors.filter_map(|tensor| tensor.rows(part.rows.clone())).collect(),
        None => tensors.cloned().collect(),
    }
}

/// Reads a request as the server wrote it.
pub(super) fn request(mut meta: &[u8], body: Bytes) -> Option<TensorInput> {
    let (form, flags) = (meta.try_get_u8().ok()?, meta.try_get_u8().ok()?);
    meta.try_get_u16_le().ok()?;
    let (items, outputs) = (meta.try_get_u32_le().ok()?, meta.try_get_u32_le().ok()?);
    let (outputs, _) = take(&mut meta, (outputs as usize).checked_mul(4)?)?.as_chunks::<4>();
    let form = match form {
        FORM_PLAIN | FORM_RAW if !outputs.is_empty() => return None,
        FORM_PLAIN => BodyForm::Plain,
        FORM_RAW => {
            let empty = meta.try_get_u32_le().ok()? == 0 && is_filling(meta);
            let raw = DecodedRequest { items, ..DecodedRequest::raw(body) };
            return empty.then(|| raw.into());
        }
        FORM_TENSORS => {
            let outputs = outputs.iter().map(|output| u32::from_le_bytes(*output) as usize);
            BodyForm::Tensors { outputs: outputs.collect() }
        }
        _ => return None,
    };
    let tensors = tensors(&mut meta, body).filter(|_| is_filling(meta))?;
    let bare = flags & FLAG_BARE != 0;
    let request =
        DecodedRequest { tensors, items, raw: None, length: None, form, bare, claim: None };
    Some(request.into())
}

/// Outputs as a worker sends them.
pub(super) fn outputs(tensors: &[NamedTensor]) -> Bytes {
    let raw: Vec<RawTensor<'_>> = tensors
        .iter()
        .map(|tensor| (tensor.datatype(), tensor.shape(), &tensor.data()[..]))
        .collect();
    let elements: usize = raw.iter().map(|(.., data)| data.len() + ALIGNMENT).sum();
    let ranks: usize = raw.iter().map(|(_, shape, _)| shape.len()).sum();
    let mut out = BytesMut::with_capacity(elements + 8 * ranks + 13 * raw.len() + 2 * ALIGNMENT);
    put_raw_table(raw.iter().copied(), &mut out);
    align(&mut out);
    put_elements(raw.iter().map(|(.., data)| *data), &mut out);
    out.freeze()
}

/// Reads what [`outputs`] wrote, without copying the elements.
pub(super) fn read_outputs(bytes: &Bytes) -> Option<Vec<Tensor>> {
    let mut rest = &bytes[..];
    table(&mut rest)?;
    let end = bytes.len() - rest.len();
    let elements = end.next_multiple_of(ALIGNMENT);
    let mut head = &bytes[..end];
    tensors(&mut head, bytes.get(elements..).map(|_| bytes.slice(elements..))?)
}

fn put_table(tensors: &[Tensor], out: &mut BytesMut) {
    let raw = tensors.iter().map(|it| (it.datatype(), it.shape(), &it.data()[..]));
    put_raw_table(raw, out);
}

fn put_raw_table<'a>(tensors: impl ExactSizeIterator<Item = RawTensor<'a>>, out: &mut BytesMut) {
    out.put_u32_le(tensors.len() as u32);
    for (datatype, shape, data) in tensors {
        let number = DATATYPES.iter().position(|known| *known == datatype);
        out.put_u8(number.unwrap_or_default() as u8);
        out.put_u32_le(shape.len() as u32);
        shape.iter().for_each(|size| out.put_u64_le(*size as u64));
        out.put_u64_le(data.len() as u64);
    }
}

/// Each tensor's elements, from a multiple of the alignment on.
fn put_elements<'a>(tensors: impl Iterator<Item = &'a [u8]>, out: &mut BytesMut) {
    let start = out.len();
    for data in tensors {
        let place = (out.len() - start).next_multiple_of(ALIGNMENT);
        out.resize(start + place, 0);
        out.put_slice(data);
    }
}

fn align(out: &mut BytesMut) {
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
}

/// Whether nothing but filling is left of a meta.
fn is_filling(rest: &[u8]) -> bool {
    rest.len() < ALIGNMENT && rest.iter().all(|byte| *byte == 0)
}

/// The types, shapes and lengths of tensors.
fn table(bytes: &mut &[u8]) -> Option<Vec<(Datatype, Vec<usize>, usize)>> {
    let count = bytes.try_get_u32_le().ok()?;
    let mut table = Vec::new();
    for _ in 0..count {
        let datatype = *DATATYPES.get(usize::from(bytes.try_get_u8().ok()?))?;
        let rank = bytes.try_get_u32_le().ok()? as usize;
        let (sizes, _) = take(bytes, rank.checked_mul(8)?)?.as_chunks::<8>();
        let sizes = sizes.iter().map(|size| usize::try_from(u64::from_le_bytes(*size)).ok());
        let shape = sizes.collect::<Option<_>>()?;
        table.push((datatype, shape, usize::try_from(bytes.try_get_u64_le().ok()?).ok()?));
    }
    Some(table)
}

/// Tensors that lie in these elements and use them up.
fn tensors(head: &mut &[u8], elements: Bytes) -> Option<Vec<Tensor>> {
    let mut end = 0usize;
    let tensors = table(head)?.into_iter().map(|(datatype, shape, length)| {
        let start = end.checked_next_multiple_of(ALIGNMENT)?;
        end = start.checked_add(length)?;
        let data = elements.get(start..end).map(|_| elements.slice(start..end))?;
        Tensor::new(datatype, shape, data)
    });
    let tensors = tensors.collect::<Option<_>>()?;
    (end == elements.len()).then_some(tensors)
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

    fn written(input: &TensorInput) -> (BytesMut, Bytes) {
        let (mut meta, mut body) = (BytesMut::new(), BytesMut::new());
        put_meta(input, &mut meta);
        put_body(input, &mut body);
        (meta, body.freeze())
    }

    fn sample(form: BodyForm) -> TensorInput {
        let texts = Bytes::from_static(b"\x02\0\0\0hi\0\0\0\0\x01\0\0\0x");
        let tensors = [
            Tensor::of(Datatype::Fp64, vec![3, 2], &[1.5f64; 6]),
            Tensor::of(Datatype::Uint8, vec![3], &[1u8, 2, 3]),
            Tensor::new(Datatype::Bytes, vec![3], texts),
            Tensor::of(Datatype::Int64, vec![3, 1], &[-1i64, 0, 7]),
        ];
        let tensors = tensors.into_iter().map(|it| it.expect("filled")).collect();
        let (raw, length, claim) = (None, None, None);
        DecodedRequest { tensors, items: 3, raw, length, form, bare: true, claim }.into()
    }

    #[test]
    fn a_request_is_read_as_it_was_written_and_not_copied() {
        let tensors = |outputs: &[usize]| BodyForm::Tensors { outputs: outputs.to_vec() };
        for form in [BodyForm::Plain, tensors(&[]), tensors(&[2, 0])] {
            let sent = sample(form);
            let (meta, body) = written(&sent);
            let read = request(&meta, body.clone()).expect("sound");
            assert_eq!((&read.shared.form, read.shared.bare), (&sent.shared.form, true));
            assert_eq!((&read.shared.tensors, read.shared.items), (&sent.shared.tensors, 3));
            assert_eq!(read.shared.tensors[0].data().as_ptr(), body.as_ptr());
            assert_eq!(meta.len() % ALIGNMENT, 0);
        }
    }

    #[test]
    fn a_raw_body_is_read_as_it_came() {
        let sent: TensorInput = DecodedRequest::raw(Bytes::from_static(b"a photo")).into();
        let (meta, body) = written(&sent);
        let read = request(&meta, body).expect("sound").shared;
        assert_eq!((read.raw.as_deref(), read.items), (Some(&b"a photo"[..]), 1));
    }

    /// The bytes of `protocol/spec.md`.
    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let form = BodyForm::Tensors { outputs: vec![1] };
        let first = Tensor::of(Datatype::Int64, vec![1, 2], &[1i64, -1]);
        let second = Tensor::of(Datatype::Uint16, vec![1], &[7u16]);
        let tensors = vec![first.expect("filled"), second.expect("filled")];
        let (raw, length, claim) = (None, None, None);
        let request = DecodedRequest { tensors, items: 1, raw, length, form, bare: true, claim };
        let (meta, body) = written(&request.into());
        let head: &[u8] = &[2, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
        let eight = |number: u8| [number, 0, 0, 0, 0, 0, 0, 0];
        let table = [&[4, 2, 0, 0, 0][..], &eight(1), &eight(2), &eight(16)].concat();
        let other = [&[8, 1, 0, 0, 0][..], &eight(1), &eight(2)].concat();
        let whole = [head, &table, &other].concat();
        assert_eq!((&meta[..whole.len()], meta.len()), (&whole[..], 80));
        let ones: &[u8] = &[0xff; 8];
        assert_eq!(&body[..], [&eight(1), ones, &[7, 0]].concat());
    }

    #[test]
    fn a_part_is_sent_with_its_own_rows_and_answered_with_tensors() {
        let parts = sample(BodyForm::Plain).split(2);
        let (meta, body) = written(&parts[1]);
        let read = request(&meta, body).expect("sound").shared;
        assert_eq!((read.items, &read.form), (1, &BodyForm::Tensors { outputs: Vec::new() }));
        assert_eq!(read.tensors[2].data(), &b"\x01\0\0\0x"[..]);
        assert_eq!(read.tensors[3].data(), &7i64.to_le_bytes()[..]);
        let named = read.tensors.iter().map(|tensor| tensor.clone().named("y").expect("filled"));
        let sent = outputs(&named.collect::<Vec<_>>());
        assert_eq!(read_outputs(&sent), Some(read.tensors.clone()));
    }

    proptest! {
        /// Whatever bytes come: an answer, and never one that was cut or has something left over.
        #[test]
        fn bytes_that_do_not_add_up_are_refused(
            noise in prop::collection::vec(any::<u8>(), 0..80),
            cut in 1usize..12,
        ) {
            let _ = request(&noise, noise.clone().into());
            let _ = read_outputs(&noise.into());
            let (meta, body) = written(&sample(BodyForm::Plain));
            prop_assert!(request(&meta[..meta.len() - cut - ALIGNMENT], body.clone()).is_none());
            prop_assert!(request(&meta, body.slice(..body.len() - cut)).is_none());
            let longer = [&body[..], &[0; 4]].concat();
            prop_assert!(request(&meta, longer.into()).is_none());
        }
    }
}
