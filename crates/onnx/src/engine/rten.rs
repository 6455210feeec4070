//! The built-in engine: rten, which is part of the program. It holds numbers of single precision and
//! integers of 32 bits; wider and narrower ones are changed on the way in and out.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use ::rten::{Model, NodeId, RunOptions, ThreadPool, Value, ValueView};
use bytemuck::Pod;
use jitney_engine::local::{Signature, TensorSpec};
use jitney_engine::outcome::ModelFailure;
use jitney_engine::tensors::Datatype;
use rten_tensor::Layout;

use super::super::elements;
use super::super::tensor::Tensor;
use super::defaults;

/// A model in rten.
pub(crate) struct RtenEngine {
    graph: Model,
    inputs: Vec<NodeId>,
    outputs: Vec<TensorSpec>,
}

/// The threads of one worker.
pub(crate) struct RtenThreads(RunOptions);

impl RtenThreads {
    /// Does some work inside a pool of its own: a batch then starts where it arrives instead of being
    /// handed to the pool's thread and back.
    pub(crate) fn enter<T: Send>(threads: usize, work: impl FnOnce(Self) -> T + Send) -> T {
        let pool = Arc::new(ThreadPool::with_num_threads(threads));
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&pool)));
        pool.run(|| work(Self(options)))
    }
}

impl RtenEngine {
    /// Loads a file that is known to be well-formed: from its path, so that weights in files of their
    /// own are found, or from memory. rten may panic on files that no exporter made.
    pub(crate) fn load(
        file: Cow<'static, [u8]>,
        path: Option<&Path>,
        signature: &Signature,
    ) -> Result<Self, String> {
        for spec in signature.inputs.iter().chain(&signature.outputs) {
            if !holds(spec.datatype) {
                return Err(format!(
                    "{:?} is {}, which the built-in engine does not have",
                    spec.name, spec.datatype
                ));
            }
        }
        let filled = defaults::filled(&file);
        let load = || match (path, file) {
            _ if let Some(filled) = filled => Model::load(filled),
            (Some(path), file) => {
                drop(file);
                Model::load_file(path)
            }
            (None, Cow::Borrowed(file)) => Model::load_static_slice(file),
            (None, Cow::Owned(file)) => Model::load(file),
        };
        let loaded = catch_unwind(AssertUnwindSafe(load));
        let loaded = loaded.map_err(|_| "the built-in engine panicked on it".to_owned())?;
        let graph = loaded.map_err(|error| error.to_string())?;
        let node = |spec: &TensorSpec| {
            let missing = || format!("input {:?} is not in the graph", spec.name);
            graph.find_node(&spec.name).ok_or_else(missing)
        };
        let inputs = signature.inputs.iter().map(node).collect::<Result<_, _>>()?;
        if graph.output_ids().len() != signature.outputs.len() {
            return Err("an output is not in the graph".to_owned());
        }
        Ok(Self { graph, inputs, outputs: signature.outputs.clone() })
    }

    pub(crate) fn run(
        &self,
        tensors: &[Tensor],
        RtenThreads(options): &RtenThreads,
    ) -> Result<Vec<Tensor>, ModelFailure> {
        let held = tensors.iter().map(HeldTensor::of).collect::<Result<Vec<_>, _>>();
        let held = held.map_err(ModelFailure::unfit)?;
        let views = held.iter().zip(tensors).map(|(held, tensor)| held.view(tensor.shape()));
        let views = views.collect::<Option<Vec<_>>>();
        let views =
            views.ok_or_else(|| ModelFailure::unfit("a tensor's data does not fill its shape"))?;
        let inputs = self.inputs.iter().copied().zip(views.into_iter().map(Into::into)).collect();
        let values = self.graph.run(inputs, self.graph.output_ids(), Some(options.clone()));
        let values = values.map_err(|error| ModelFailure::unfit(error.to_string()))?;
        let outputs =
            values.into_iter().zip(&self.outputs).map(|(value, spec)| tensor(value, spec));
        outputs.collect::<Result<_, _>>().map_err(ModelFailure::raised)
    }
}

/// Whether tensors of this type have a place in rten.
fn holds(datatype: Datatype) -> bool {
    match datatype {
        Datatype::Bool
        | Datatype::Uint8
        | Datatype::Int8
        | Datatype::Int32
        | Datatype::Int64
        | Datatype::Fp16
        | Datatype::Fp32
        | Datatype::Fp64 => true,
        Datatype::Uint16
        | Datatype::Uint32
        | Datatype::Uint64
        | Datatype::Int16
        | Datatype::Bf16
        | Datatype::Bytes => false,
    }
}

/// Elements as rten holds them: those of the request where they lie, where that can be.
enum HeldTensor<'a> {
    Floats(Cow<'a, [f32]>),
    Integers(Cow<'a, [i32]>),
    Signed(Cow<'a, [i8]>),
    Bytes(&'a [u8]),
}

impl<'a> HeldTensor<'a> {
    fn of(tensor: &'a Tensor) -> Result<Self, String> {
        let unheld = || format!("the built-in engine does not have {}", tensor.datatype());
        Ok(match tensor.datatype() {
            Datatype::Uint8 => Self::Bytes(tensor.data()),
            Datatype::Int8 => Self::Signed(cast(tensor.data())),
            Datatype::Int32 => Self::Integers(cast(tensor.data())),
            Datatype::Bool | Datatype::Int64 => {
                let narrow = elements::convert(tensor.clone(), Datatype::Int32)?;
                Self::Integers(Cow::Owned(bytemuck::pod_collect_to_vec(&narrow.data()[..])))
            }
            Datatype::Fp16 | Datatype::Fp32 | Datatype::Fp64 => {
                Self::Floats(elements::floats(tensor).ok_or_else(unheld)?)
            }
            Datatype::Uint16
            | Datatype::Uint32
            | Datatype::Uint64
            | Datatype::Int16
            | Datatype::Bf16
            | Datatype::Bytes => return Err(unheld()),
        })
    }

    fn view(&self, shape: &[usize]) -> Option<ValueView<'_>> {
        match self {
            Self::Floats(data) => ValueView::from_shape(shape, &data[..]).ok(),
            Self::Integers(data) => ValueView::from_shape(shape, &data[..]).ok(),
            Self::Signed(data) => ValueView::from_shape(shape, &data[..]).ok(),
            Self::Bytes(data) => ValueView::from_shape(shape, data).ok(),
        }
    }
}

/// Elements where they lie, or copied to where they may be read.
fn cast<T: Pod>(raw: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(raw) {
        Ok(elements) => Cow::Borrowed(elements),
        Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(raw)),
    }
}

/// What rten gave for an output: in the type that the model declares for it where rten kept to that, in
/// rten's own where it did not.
fn tensor(value: Value, spec: &TensorSpec) -> Result<Tensor, String> {
    let (shape, declared) = (value.shape().to_vec(), spec.datatype);
    let held = match value {
        Value::FloatTensor(values) => Tensor::of(Datatype::Fp32, shape, &values.into_data()),
        Value::Int32Tensor(values) => Tensor::of(Datatype::Int32, shape, &values.into_data()),
        Value::Int8Tensor(values) => Tensor::of(Datatype::Int8, shape, &values.into_data()),
        Value::UInt8Tensor(values) => Tensor::of(Datatype::Uint8, shape, &values.into_data()),
        Value::Sequence(_) | _ => None,
    };
    let held = held.ok_or_else(|| format!("output {:?} is no tensor", spec.name))?;
    // rten holds truth values as integers, of which any but 0 is true.
    if held.datatype() == Datatype::Int32 && declared == Datatype::Bool {
        let truths: Vec<u8> =
            elements::numbers(&held).map(|number| u8::from(number.double() != 0.0)).collect();
        let truths = Tensor::of(Datatype::Bool, held.shape().to_vec(), &truths);
        return truths.ok_or_else(|| "an output has another size than its shape".to_owned());
    }
    if held.datatype().admits(declared) { elements::convert(held, declared) } else { Ok(held) }
}
