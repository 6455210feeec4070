//! ONNX Runtime, from a library that is loaded at run time. Only this file and those below it know it.
//!
//! Tensors are read where they lie; only those that lie at an odd place are copied. A session is used by
//! one thread at a time, as ONNX Runtime's own contract with execution providers demands.

mod maker;
mod providers;

use std::fmt::Debug;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use ::ort::environment::Environment;
use ::ort::logging::LogLevel;
use ::ort::session::{Session, SessionInputValue};
use ::ort::value::{
    DynMapValueType, DynSequenceValueType, DynTensorValueType, DynValue, DynValueTypeMarker,
    PrimitiveTensorElementType, Tensor as OrtTensor, TensorElementType, TensorRef, Utf8Data, Value,
    ValueType,
};
use bytes::{BufMut, Bytes, BytesMut};
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use jitney_engine::local::Signature;
use jitney_engine::outcome::{Cause, ModelFailure};
use jitney_engine::tensors::{Datatype, strings};

use self::maker::SessionMaker;
pub(crate) use self::providers::{SessionGpu, providers};
use super::super::tensor::Tensor;

/// The library of this process, or why it could not be loaded. It is tried once only: ort 2.0.0-rc.14
/// does not survive a second try after a failed one.
static LIBRARY: OnceLock<Result<Environment, String>> = OnceLock::new();

/// A model in ONNX Runtime.
pub(crate) struct OrtEngine {
    session: Mutex<Session>,
    inputs: Vec<String>,
    maker: SessionMaker,
    /// The threads of the session. Who makes another one holds this.
    threads: Mutex<usize>,
    wanted: AtomicUsize,
}

/// Loads the library, unless one is loaded already.
pub(crate) fn load_library(path: &Path) -> Result<(), String> {
    environment(path).map(|_| ())
}

fn environment(path: &Path) -> Result<&'static Environment, String> {
    let load = || {
        let builder = ::ort::init_from(path).map_err(|error| error.to_string())?;
        let environment = builder.with_name("jitney").with_telemetry(false).build();
        let environment = environment.map_err(|error| error.to_string())?;
        environment.set_log_level(LogLevel::Error);
        Ok(environment)
    };
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

impl OrtEngine {
    /// Loads a model: from its path, so that weights in files of their own are found, or from memory.
    pub(crate) fn load(
        library: &Path,
        (file, path): (&[u8], Option<&Path>),
        signature: &Signature,
        (threads, wanted, gpu): (usize, &[String], SessionGpu),
    ) -> Result<Self, String> {
        let maker = SessionMaker::new(environment(library)?, (file, path), wanted, gpu)?;
        let session = maker.make(file, threads).map_err(|error| plain(&error.to_string()))?;
        let inputs = signature.inputs.iter().map(|input| input.name.clone()).collect();
        let (wanted, threads) = (AtomicUsize::new(threads), Mutex::new(threads));
        Ok(Self { session: Mutex::new(session), inputs, maker, threads, wanted })
    }

    /// So many threads are wanted; [`Self::follow`] takes them.
    pub(crate) fn want_threads(&self, threads: usize) {
        self.wanted.store(threads, Ordering::Relaxed);
    }

    /// Makes a session with as many threads as are wanted, beside the one that serves, and puts it in its place between
    /// two runs. One that cannot be made leaves the old one there.
    pub(crate) fn follow(&self) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted == *threads || !self.maker.beside {
            return;
        }
        let Ok(fresh) = self.maker.make(&[], wanted) else { return };
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *session, fresh);
        drop(session);
        // Waits for its threads, and nobody else does.
        drop(old);
        *threads = wanted;
    }

    pub(crate) fn run(&self, tensors: &[Tensor]) -> Result<Vec<Tensor>, ModelFailure> {
        let run = || -> ::ort::Result<Result<Vec<Tensor>, String>> {
            let inputs = self.inputs.iter().zip(tensors);
            let inputs = inputs.map(|(name, tensor)| Ok((name.as_str(), input(tensor)?)));
            let inputs = inputs.collect::<::ort::Result<Vec<(&str, SessionInputValue<'_>)>>>()?;
            // A session that panicked is as it was: it is not changed by its runs.
            let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
            let outputs = session.run(inputs)?;
            let mut given = Vec::with_capacity(outputs.len());
            for value in outputs.values() {
                if let Err(reason) = put(&value, &mut given)? {
                    return Ok(Err(reason));
                }
            }
            Ok(Ok(given))
        };
        let ran = run().map_err(|error| match tensors.iter().any(has_nul) {
            true => ModelFailure::unfit("ONNX Runtime takes no text with a NUL character"),
            false => failed(&plain(&error.to_string())),
        })?;
        ran.map_err(ModelFailure::raised)
    }
}

fn has_nul(tensor: &Tensor) -> bool {
    tensor.datatype() == Datatype::Bytes && strings(tensor.data()).any(|text| text.contains(&0))
}

/// A run that failed: the engine always does the same with the same inputs, so that they are at fault. For
/// memory that it could not get, and for a device that failed, ONNX Runtime has words and no code.
fn failed(words: &str) -> ModelFailure {
    let said = ["Failed to allocate memory", "std::bad_alloc"];
    let device = ["CUDA", "CUDNN", "CUBLAS", "HIP", "ROCBLAS", "TensorRT"];
    match said.iter().find_map(|said| words.find(said)) {
        None if device.iter().any(|device| words.contains(device)) => ModelFailure::raised(words),
        None => ModelFailure::unfit(words),
        Some(at) => ModelFailure::new(
            Cause::Memory,
            format!(
                "the model ran out of memory on this request: {}; send less at a time, or raise its \
                 memory_limit",
                &words[at..]
            ),
        ),
    }
}

/// ONNX Runtime's own words without the places in its source.
fn plain(words: &str) -> String {
    let line = words.lines().next().unwrap_or_default();
    line.rsplit_once("Status Message: ").map_or(line, |(_, reason)| reason).trim().to_owned()
}

/// A text of a request.
#[derive(Clone)]
struct RawText(Bytes);

impl Utf8Data for RawText {
    fn as_utf8_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// An element type whose memory is that of its raw bytes.
trait Element: PrimitiveTensorElementType + Debug + Clone + 'static {
    /// The elements where they lie, if they lie at a place where they may be read.
    fn view(raw: &[u8]) -> Option<&[Self]>;
    fn copied(raw: &[u8]) -> Vec<Self>;
    fn raw(elements: &[Self]) -> &[u8];
}

macro_rules! elements {
    ($($element:ty),*) => {$(
        impl Element for $element {
            fn view(raw: &[u8]) -> Option<&[Self]> {
                bytemuck::try_cast_slice(raw).ok()
            }
            fn copied(raw: &[u8]) -> Vec<Self> {
                bytemuck::pod_collect_to_vec(raw)
            }
            fn raw(elements: &[Self]) -> &[u8] {
                bytemuck::cast_slice(elements)
            }
        }
    )*};
}

elements!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

macro_rules! halves {
    ($($element:ty),*) => {$(
        impl Element for $element {
            fn view(raw: &[u8]) -> Option<&[Self]> {
                u16::view(raw).map(|bits| bits.reinterpret_cast())
            }
            fn copied(raw: &[u8]) -> Vec<Self> {
                u16::copied(raw).into_iter().map(Self::from_bits).collect()
            }
            fn raw(elements: &[Self]) -> &[u8] {
                bytemuck::cast_slice::<u16, u8>(elements.reinterpret_cast())
            }
        }
    )*};
}

halves!(f16, bf16);

impl Element for bool {
    fn view(raw: &[u8]) -> Option<&[Self]> {
        bytemuck::checked::try_cast_slice(raw).ok()
    }
    fn copied(raw: &[u8]) -> Vec<Self> {
        raw.iter().map(|byte| *byte != 0).collect()
    }
    fn raw(elements: &[Self]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }
}

/// A tensor as ONNX Runtime takes it.
fn input(tensor: &Tensor) -> ::ort::Result<SessionInputValue<'_>> {
    match tensor.datatype() {
        Datatype::Bool => view::<bool>(tensor),
        Datatype::Uint8 => view::<u8>(tensor),
        Datatype::Uint16 => view::<u16>(tensor),
        Datatype::Uint32 => view::<u32>(tensor),
        Datatype::Uint64 => view::<u64>(tensor),
        Datatype::Int8 => view::<i8>(tensor),
        Datatype::Int16 => view::<i16>(tensor),
        Datatype::Int32 => view::<i32>(tensor),
        Datatype::Int64 => view::<i64>(tensor),
        Datatype::Fp16 => view::<f16>(tensor),
        Datatype::Bf16 => view::<bf16>(tensor),
        Datatype::Fp32 => view::<f32>(tensor),
        Datatype::Fp64 => view::<f64>(tensor),
        Datatype::Bytes => {
            let data = tensor.data();
            let texts: Vec<RawText> =
                strings(data).map(|text| RawText(data.slice_ref(text))).collect();
            Ok(OrtTensor::from_string_array((tensor.shape(), &texts[..]))?.into())
        }
    }
}

fn view<T: Element>(tensor: &Tensor) -> ::ort::Result<SessionInputValue<'_>> {
    match T::view(tensor.data()) {
        Some(elements) => Ok(TensorRef::from_array_view((tensor.shape(), elements))?.into()),
        None => {
            let elements = T::copied(tensor.data());
            Ok(OrtTensor::from_array((tensor.shape(), elements))?.into())
        }
    }
}

/// Adds what ONNX Runtime gave for one output: a tensor, or the tensors that stand for a map or a
/// sequence.
fn put(value: &DynValue, given: &mut Vec<Tensor>) -> ::ort::Result<Result<(), String>> {
    let tensors = match value.dtype() {
        ValueType::Tensor { .. } => {
            tensor(&*value.downcast_ref::<DynTensorValueType>()?)?.map(|tensor| vec![tensor])
        }
        ValueType::Map { .. } => maps(&[value.view()])?,
        ValueType::Sequence(kind) => {
            let values = value.downcast_ref::<DynSequenceValueType>()?;
            let values = values.try_extract_sequence::<DynValueTypeMarker>()?;
            match **kind {
                ValueType::Map { .. } => maps(&values.iter().map(Value::view).collect::<Vec<_>>())?,
                ValueType::Tensor { .. } | ValueType::Sequence(_) | ValueType::Optional(_) => {
                    sequence(&values)?
                }
            }
        }
        ValueType::Optional(_) => Err("an optional output was left out".to_owned()),
    };
    Ok(tensors.map(|tensors| given.extend(tensors)))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "types that no protocol has, and more to come")]
fn tensor(value: &Value<DynTensorValueType>) -> ::ort::Result<Result<Tensor, String>> {
    match value.data_type() {
        TensorElementType::Bool => copied::<bool>(value, Datatype::Bool),
        TensorElementType::Uint8 => copied::<u8>(value, Datatype::Uint8),
        TensorElementType::Uint16 => copied::<u16>(value, Datatype::Uint16),
        TensorElementType::Uint32 => copied::<u32>(value, Datatype::Uint32),
        TensorElementType::Uint64 => copied::<u64>(value, Datatype::Uint64),
        TensorElementType::Int8 => copied::<i8>(value, Datatype::Int8),
        TensorElementType::Int16 => copied::<i16>(value, Datatype::Int16),
        TensorElementType::Int32 => copied::<i32>(value, Datatype::Int32),
        TensorElementType::Int64 => copied::<i64>(value, Datatype::Int64),
        TensorElementType::Float16 => copied::<f16>(value, Datatype::Fp16),
        TensorElementType::Bfloat16 => copied::<bf16>(value, Datatype::Bf16),
        TensorElementType::Float32 => copied::<f32>(value, Datatype::Fp32),
        TensorElementType::Float64 => copied::<f64>(value, Datatype::Fp64),
        TensorElementType::String => {
            let (shape, texts) = value.try_extract_strings()?;
            Ok(whole(Datatype::Bytes, shape, text_bytes(texts.iter().map(String::as_str))))
        }
        other => Ok(Err(format!("no protocol has elements of type {other}"))),
    }
}

/// The elements, copied out of memory that ONNX Runtime may have shared with an input.
fn copied<T: Element>(
    value: &Value<DynTensorValueType>,
    datatype: Datatype,
) -> ::ort::Result<Result<Tensor, String>> {
    let (shape, elements) = value.try_extract_tensor::<T>()?;
    Ok(whole(datatype, shape, Bytes::copy_from_slice(T::raw(elements))))
}

fn whole(datatype: Datatype, shape: &[i64], data: Bytes) -> Result<Tensor, String> {
    let shape = shape.iter().map(|size| usize::try_from(*size).ok()).collect::<Option<_>>();
    let tensor = shape.and_then(|shape| Tensor::new(datatype, shape, data));
    tensor.ok_or_else(|| "an output has another size than its shape".to_owned())
}

fn text_bytes<'a>(texts: impl Iterator<Item = &'a str>) -> Bytes {
    let mut raw = BytesMut::new();
    for text in texts {
        raw.put_u32_le(text.len() as u32);
        raw.put_slice(text.as_bytes());
    }
    raw.freeze()
}

/// Maps as two tensors with a row each: their values, and their keys. All have as many keys.
#[expect(clippy::wildcard_enum_match_arm, reason = "types that no map of ONNX has")]
fn maps(
    maps: &[::ort::value::ValueRef<'_, DynValueTypeMarker>],
) -> ::ort::Result<Result<Vec<Tensor>, String>> {
    let kind = maps.first().map(|map| map.dtype().clone());
    match kind {
        None => Ok(Err("a sequence of no maps has no keys".to_owned())),
        Some(ValueType::Map { key: TensorElementType::Int64, value }) => match value {
            TensorElementType::Float32 => map_rows::<i64, f32>(maps, Datatype::Fp32, whole_keys),
            TensorElementType::Float64 => map_rows::<i64, f64>(maps, Datatype::Fp64, whole_keys),
            TensorElementType::Int64 => map_rows::<i64, i64>(maps, Datatype::Int64, whole_keys),
            other => Ok(Err(format!("a map to {other} is not served"))),
        },
        Some(ValueType::Map { key: TensorElementType::String, value }) => match value {
            TensorElementType::Float32 => map_rows::<String, f32>(maps, Datatype::Fp32, text_keys),
            TensorElementType::Float64 => map_rows::<String, f64>(maps, Datatype::Fp64, text_keys),
            TensorElementType::Int64 => map_rows::<String, i64>(maps, Datatype::Int64, text_keys),
            other => Ok(Err(format!("a map to {other} is not served"))),
        },
        Some(other) => Ok(Err(format!("{other} is not served"))),
    }
}

fn whole_keys(keys: &[i64]) -> (Datatype, Bytes) {
    (Datatype::Int64, Bytes::copy_from_slice(bytemuck::cast_slice(keys)))
}

fn text_keys(keys: &[String]) -> (Datatype, Bytes) {
    (Datatype::Bytes, text_bytes(keys.iter().map(String::as_str)))
}

fn map_rows<K, V>(
    maps: &[::ort::value::ValueRef<'_, DynValueTypeMarker>],
    datatype: Datatype,
    raw_keys: fn(&[K]) -> (Datatype, Bytes),
) -> ::ort::Result<Result<Vec<Tensor>, String>>
where
    K: ::ort::value::IntoTensorElementType + Clone + std::hash::Hash + Eq,
    V: Element,
{
    let (mut keys, mut values, mut width) = (Vec::new(), Vec::new(), None);
    for map in maps {
        let map = map.downcast_ref::<DynMapValueType>()?;
        let pairs = map.try_extract_key_values::<K, V>()?;
        if width.is_some_and(|width| width != pairs.len()) {
            return Ok(Err("the maps of an output have different keys".to_owned()));
        }
        width = Some(pairs.len());
        for (key, value) in pairs {
            keys.push(key);
            values.push(value);
        }
    }
    let shape = vec![maps.len(), width.unwrap_or(0)];
    let (key_type, raw) = raw_keys(&keys);
    let values = Bytes::copy_from_slice(V::raw(&values));
    let tensors = [Tensor::new(datatype, shape.clone(), values), Tensor::new(key_type, shape, raw)];
    let tensors = tensors.into_iter().collect::<Option<Vec<_>>>();
    Ok(tensors.ok_or_else(|| "a map has more keys than values".to_owned()))
}

/// A sequence of tensors as two: all elements, and the shapes. Where the shapes are equal the elements
/// are stacked, a row for each tensor; otherwise they are one list.
fn sequence(values: &[DynValue]) -> ::ort::Result<Result<Vec<Tensor>, String>> {
    let (mut data, mut shapes, mut datatype) = (BytesMut::new(), Vec::new(), Datatype::Fp32);
    for value in values {
        let tensor = match tensor(&*value.downcast_ref::<DynTensorValueType>()?)? {
            Ok(tensor) => tensor,
            Err(reason) => return Ok(Err(reason)),
        };
        datatype = tensor.datatype();
        data.extend_from_slice(tensor.data());
        shapes.push(tensor.shape().to_vec());
    }
    let rank = shapes.first().map_or(0, Vec::len);
    if shapes.iter().any(|shape| shape.len() != rank) {
        return Ok(Err("the tensors of a sequence have different ranks".to_owned()));
    }
    let equal = shapes.windows(2).all(|pair| pair[0] == pair[1]);
    let shape = match shapes.first() {
        Some(first) if equal => [&[shapes.len()], &first[..]].concat(),
        _ => vec![shapes.iter().map(|shape| shape.iter().product::<usize>()).sum()],
    };
    let sizes: Vec<i64> = shapes.concat().into_iter().map(|size| size as i64).collect();
    let sizes = Tensor::of(Datatype::Int64, vec![shapes.len(), rank], &sizes);
    let tensors = [Tensor::new(datatype, shape, data.freeze()), sizes];
    let tensors = tensors.into_iter().collect::<Option<Vec<_>>>();
    Ok(tensors.ok_or_else(|| "a sequence has another size than its shapes".to_owned()))
}
