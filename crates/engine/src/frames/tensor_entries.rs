//! Tensors in frames: entries of `{u16 name_len, u16 type_len, u32 value_len, name, type}`, where the type is
//! `{u8 rank, rank x {u64 size}, datatype}`, and behind them the elements of all as they are. An entry
//! without a type names an output that is asked for.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::tensors::{Datatype, NamedTensor, TensorRequest};

const ENTRY_LEN: usize = 8;

/// How many entries a request has.
pub(super) fn count(request: &TensorRequest) -> usize {
    request.inputs.len() + request.outputs.len()
}

/// The bytes of a request's entries.
pub(super) fn length(request: &TensorRequest) -> usize {
    let input = |it: &NamedTensor| ENTRY_LEN + it.name().len() + type_len(it);
    let inputs: usize = request.inputs.iter().map(input).sum();
    inputs + request.outputs.iter().map(|name| ENTRY_LEN + name.len()).sum::<usize>()
}

/// Writes a request's entries.
pub(super) fn encode(request: &TensorRequest, out: &mut BytesMut) {
    for tensor in &request.inputs {
        out.put_u16_le(tensor.name().len() as u16);
        out.put_u16_le(type_len(tensor) as u16);
        out.put_u32_le(tensor.data().len() as u32);
        out.put_slice(tensor.name().as_bytes());
        out.put_u8(tensor.shape().len() as u8);
        tensor.shape().iter().for_each(|size| out.put_u64_le(*size as u64));
        out.put_slice(tensor.datatype().as_str().as_bytes());
    }
    for name in &request.outputs {
        out.put_u16_le(name.len() as u16);
        out.put_bytes(0, 6);
        out.put_slice(name.as_bytes());
    }
}

fn type_len(tensor: &NamedTensor) -> usize {
    1 + 8 * tensor.shape().len() + tensor.datatype().as_str().len()
}

/// Reads the entries of an answer: `{u16 count}`, then so many. Their elements share the body's memory.
pub(super) fn decode(meta: &mut Bytes, mut body: Bytes) -> Result<Box<[NamedTensor]>, String> {
    let count = meta.try_get_u16_le().map_err(|_| CUT_OFF)?;
    let tensors = (0..count).map(|_| tensor(meta, &mut body)).collect::<Result<_, _>>()?;
    if body.is_empty() { Ok(tensors) } else { Err("bytes are left over".to_owned()) }
}

const CUT_OFF: &str = "it is cut off";

fn tensor(meta: &mut Bytes, body: &mut Bytes) -> Result<NamedTensor, String> {
    let mut head = take(meta, ENTRY_LEN)?;
    let (name_len, type_len, value_len) = (head.get_u16_le(), head.get_u16_le(), head.get_u32_le());
    let name = take(meta, usize::from(name_len))?;
    let name = std::str::from_utf8(&name).map_err(|_| "its name is not UTF-8")?;
    let mut spelt = take(meta, usize::from(type_len))?;
    let rank = usize::from(spelt.try_get_u8().map_err(|_| CUT_OFF)?);
    let mut sizes = take(&mut spelt, 8 * rank)?;
    let shape = (0..rank).map(|_| usize::try_from(sizes.get_u64_le()));
    let shape: Box<[usize]> = shape.collect::<Result<_, _>>().map_err(|_| "it is too large")?;
    let datatype = std::str::from_utf8(&spelt).ok().and_then(Datatype::parse);
    let datatype = datatype.ok_or("there is no such datatype")?;
    NamedTensor::new(name, datatype, shape, take(body, value_len as usize)?)
}

fn take(from: &mut Bytes, length: usize) -> Result<Bytes, String> {
    if length > from.len() { Err(CUT_OFF.to_owned()) } else { Ok(from.split_to(length)) }
}
