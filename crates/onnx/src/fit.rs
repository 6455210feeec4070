//! Fits the numbers of a request to the inputs of the model: every input once, in its type and its
//! shape, all with the same number of items. The result needs no further check before it is joined
//! with others; nothing is coerced that a client could have meant otherwise.

use super::bad_input::BadInput;
use super::body::NamedNumbers;
use super::elements;
use super::hint;
use super::numbers::Numbers;
use super::tensor::Tensor;
use jitney_engine::local::{Dim, Signature, TensorSpec};
use jitney_engine::tensors::{Datatype, NamedTensor};

/// A request's tensors in the model's order.
#[derive(Debug)]
pub(super) struct Fitted {
    pub tensors: Vec<Tensor>,
    /// The size of the batch dimension; 1 for models without one.
    pub items: usize,
    /// Whether the request left the batch dimension out.
    pub bare: bool,
}

/// One input's elements with the shape that they claim.
struct InputValue<'a> {
    spec: &'a TensorSpec,
    shape: Vec<usize>,
    data: InputData,
    /// The type that the client stated.
    stated: Option<String>,
}

/// What a client sent for an input.
enum InputData {
    /// Out of JSON.
    Numbers(Numbers),
    /// As it is run.
    Raw(Tensor),
}

/// Fits tensors that came as such. Clones of the data are not copies.
pub(super) fn tensors(signature: &Signature, given: &[NamedTensor]) -> Result<Fitted, BadInput> {
    let mut places: Vec<Option<&NamedTensor>> = signature.inputs.iter().map(|_| None).collect();
    for tensor in given {
        let place = signature.input(tensor.name());
        let (place, _) = place.ok_or_else(|| unknown_input(signature, tensor.name()))?;
        if places[place].replace(tensor).is_some() {
            return Err(BadInput::Twice(tensor.name().to_owned()));
        }
    }
    let value = |(spec, tensor): (_, Option<&NamedTensor>)| {
        let tensor = tensor.ok_or_else(|| missing(spec))?;
        let (stated, shape) = (Some(tensor.datatype().to_string()), tensor.shape().to_vec());
        let value = InputValue { spec, shape, data: InputData::Raw(tensor.into()), stated };
        if spec.datatype.admits(tensor.datatype()) { Ok(value) } else { Err(value.mismatch()) }
    };
    let values = signature.inputs.iter().zip(places).map(value);
    fitted(signature, values.collect::<Result<_, _>>()?, false)
}

/// Fits inputs that state their type and shape, as the Open Inference Protocol has it.
pub(super) fn stated(signature: &Signature, values: Vec<NamedNumbers>) -> Result<Fitted, BadInput> {
    let values = arrange(signature, values)?;
    for value in &values {
        let datatype = value.stated.as_deref().and_then(Datatype::parse);
        if !datatype.is_some_and(|sent| value.spec.datatype.admits(sent)) {
            return Err(value.mismatch());
        }
        // The protocol allows flat data beside the shape.
        let InputData::Numbers(numbers) = &value.data else { continue };
        if numbers.shape != value.shape && numbers.shape.len() != 1 {
            let nest = &numbers.shape;
            return Err(
                value.wrong(format!("shape is {:?}, data is nested as {nest:?}", value.shape))
            );
        }
    }
    fitted(signature, values, false)
}

/// Fits inputs whose lists speak for themselves. One item may come without the batch dimension.
pub(super) fn plain(signature: &Signature, values: Vec<NamedNumbers>) -> Result<Fitted, BadInput> {
    let mut values = arrange(signature, values)?;
    let lacks_one = |value: &InputValue<'_>| {
        value.spec.shape.as_ref().is_some_and(|shape| shape.len() == value.shape.len() + 1)
    };
    let bare = signature.batches() && values.iter().all(lacks_one);
    if bare {
        values.iter_mut().for_each(|value| value.shape.insert(0, 1));
    }
    fitted(signature, values, bare)
}

/// A name that is no input of the model.
pub(super) fn unknown_input(signature: &Signature, name: &str) -> BadInput {
    let name = hint::clip(name);
    let hint = hint::did_you_mean(&name, signature.inputs.iter().map(|spec| spec.name.as_str()));
    BadInput::UnknownInput { name, hint, known: hint::names(&signature.inputs) }
}

/// Puts the values into the model's order, each exactly once.
fn arrange(
    signature: &Signature,
    values: Vec<NamedNumbers>,
) -> Result<Vec<InputValue<'_>>, BadInput> {
    let mut places: Vec<Option<NamedNumbers>> = signature.inputs.iter().map(|_| None).collect();
    for values in values {
        let place = signature.input(&values.name);
        let (place, _) = place.ok_or_else(|| unknown_input(signature, &values.name))?;
        if let Some(before) = places[place].replace(values) {
            return Err(BadInput::Twice(before.name));
        }
    }
    let specs = signature.inputs.iter().zip(places);
    specs.map(|(spec, values)| value(spec, values)).collect()
}

fn value(spec: &TensorSpec, values: Option<NamedNumbers>) -> Result<InputValue<'_>, BadInput> {
    let values = values.ok_or_else(|| missing(spec))?;
    let Some(numbers) = values.data else {
        let reason = "has no \"data\" (the binary extension is not served)".to_owned();
        return Err(BadInput::Value { name: spec.name.clone(), reason });
    };
    let shape = values.shape.unwrap_or_else(|| numbers.shape.clone());
    Ok(InputValue { spec, shape, data: InputData::Numbers(numbers), stated: values.datatype })
}

fn missing(spec: &TensorSpec) -> BadInput {
    BadInput::Missing { name: spec.name.clone(), expected: spec.to_string() }
}

fn fitted(
    signature: &Signature,
    values: Vec<InputValue<'_>>,
    bare: bool,
) -> Result<Fitted, BadInput> {
    same_sizes(&values)?;
    let items = if signature.batches() { items(&values)? } else { 1 };
    let tensors = values.into_iter().map(InputValue::into_tensor).collect::<Result<_, _>>()?;
    Ok(Fitted { tensors, items, bare })
}

/// Every fixed dimension has its size, and open ones of one name agree across the inputs.
fn same_sizes(values: &[InputValue<'_>]) -> Result<(), BadInput> {
    let mut open: Vec<(&str, usize)> = Vec::new();
    for value in values {
        let Some(shape) = &value.spec.shape else { continue };
        if !value.fits(shape) {
            return Err(value.mismatch());
        }
        for (dim, size) in shape.iter().zip(&value.shape) {
            let Dim::Open(name) = dim else { continue };
            match open.iter().find(|(known, _)| known == name) {
                Some((_, known)) if known != size => {
                    let reason = format!("dimension {name:?} is {size} here, {known} in another");
                    return Err(value.wrong(reason + " input"));
                }
                Some(_) => {}
                None => open.push((name, *size)),
            }
        }
    }
    Ok(())
}

/// The number of items, which all inputs must share even if their dimensions bear other names.
fn items(values: &[InputValue<'_>]) -> Result<usize, BadInput> {
    let count = |value: &InputValue<'_>| value.shape.first().copied().unwrap_or_default();
    let items = values.first().map(count).unwrap_or_default();
    match values.iter().find(|value| count(value) != items) {
        Some(odd) => Err(odd.wrong(format!(
            "brings {} items, {:?} brings {items}",
            count(odd),
            values[0].spec.name
        ))),
        None => Ok(items),
    }
}

impl InputValue<'_> {
    fn fits(&self, shape: &[Dim]) -> bool {
        let fits = |(dim, size): (&Dim, &usize)| match dim {
            Dim::Fixed(fixed) => fixed == size,
            Dim::Open(_) => true,
        };
        shape.len() == self.shape.len() && shape.iter().zip(&self.shape).all(fits)
    }

    fn into_tensor(self) -> Result<Tensor, BadInput> {
        if self.shape.contains(&0) {
            return Err(self.wrong(format!("shape {:?} holds nothing", self.shape)));
        }
        let datatype = self.spec.datatype;
        let numbers = match self.data {
            InputData::Raw(ref tensor) => {
                let tensor = elements::convert(tensor.clone(), datatype);
                return tensor.map_err(|reason| self.wrong(reason));
            }
            InputData::Numbers(ref numbers) => numbers,
        };
        let raw = numbers.narrow(datatype).map_err(|reason| self.wrong(reason))?;
        let (count, shape) = (numbers.len(), self.shape.clone());
        Tensor::new(datatype, shape, raw.into()).ok_or_else(|| {
            self.wrong(format!("shape is {:?}, data has {count} elements", self.shape))
        })
    }

    fn mismatch(&self) -> BadInput {
        let datatype = self.stated.as_ref().map(|name| format!("{name} of ")).unwrap_or_default();
        let got = hint::clip(&format!("{datatype}shape {:?}", self.shape));
        let reason = format!("expected {}, got {got}", self.spec);
        BadInput::Value { name: self.spec.name.clone(), reason }
    }

    fn wrong(&self, reason: String) -> BadInput {
        let reason = hint::clip(&reason);
        BadInput::Value { name: self.spec.name.clone(), reason }
    }
}
