//! Fits the numbers of a request to the inputs of the model: every input once, in its type and its
//! shape, all with the same number of items. The result needs no further check before it is joined
//! with others; nothing is coerced that a client could have meant otherwise.

use super::body::Given;
use super::hint;
use super::numbers::Numbers;
use super::refusal::BadInput;
use super::tensor::Tensor;
use jitney_engine::local::Datatype;
use jitney_engine::local::{Dim, Signature, TensorSpec};

/// A request's tensors in the model's order.
#[derive(Debug)]
pub(super) struct Fitted {
    pub tensors: Vec<Tensor>,
    /// The size of the batch dimension; 1 for models without one.
    pub items: usize,
    /// Whether the request left the batch dimension out.
    pub bare: bool,
}

/// One input's numbers with the shape that they claim.
struct Offer<'a> {
    port: &'a TensorSpec,
    shape: Vec<usize>,
    numbers: Numbers,
    /// The type that the client stated.
    stated: Option<String>,
}

/// Fits inputs that state their type and shape, as the Open Inference Protocol has it.
pub(super) fn stated(signature: &Signature, given: Vec<Given>) -> Result<Fitted, BadInput> {
    let offers = arrange(signature, given)?;
    for offer in &offers {
        let datatype = offer.stated.as_deref().and_then(Datatype::parse);
        if !datatype.is_some_and(|sent| offer.port.datatype.admits(sent)) {
            return Err(offer.mismatch());
        }
        // The protocol allows flat data beside the shape.
        if offer.numbers.shape != offer.shape && offer.numbers.shape.len() != 1 {
            let nest = &offer.numbers.shape;
            return Err(
                offer.wrong(format!("shape is {:?}, data is nested as {nest:?}", offer.shape))
            );
        }
    }
    fitted(signature, offers, false)
}

/// Fits inputs whose lists speak for themselves. One item may come without the batch dimension.
pub(super) fn plain(signature: &Signature, given: Vec<Given>) -> Result<Fitted, BadInput> {
    let mut offers = arrange(signature, given)?;
    let lacks_one = |offer: &Offer<'_>| {
        offer.port.shape.as_ref().is_some_and(|shape| shape.len() == offer.shape.len() + 1)
    };
    let bare = signature.batches() && offers.iter().all(lacks_one);
    if bare {
        offers.iter_mut().for_each(|offer| offer.shape.insert(0, 1));
    }
    fitted(signature, offers, bare)
}

/// Refuses the first name that is no input of the model.
pub(super) fn nothing_unknown(signature: &Signature, names: &[String]) -> Result<(), BadInput> {
    let Some(name) = names.first() else { return Ok(()) };
    let name = hint::clip(name);
    let hint = hint::did_you_mean(&name, signature.inputs.iter().map(|port| port.name.as_str()));
    Err(BadInput::UnknownInput { name, hint, known: hint::names(&signature.inputs) })
}

/// Puts the given values into the model's order, each exactly once.
fn arrange(signature: &Signature, given: Vec<Given>) -> Result<Vec<Offer<'_>>, BadInput> {
    let mut places: Vec<Option<Given>> = signature.inputs.iter().map(|_| None).collect();
    for given in given {
        let Some((place, _)) = signature.input(&given.name) else {
            nothing_unknown(signature, std::slice::from_ref(&given.name))?;
            continue;
        };
        if let Some(before) = places[place].replace(given) {
            return Err(BadInput::Twice { name: before.name });
        }
    }
    let ports = signature.inputs.iter().zip(places);
    ports.map(|(port, given)| offer(port, given)).collect()
}

fn offer(port: &TensorSpec, given: Option<Given>) -> Result<Offer<'_>, BadInput> {
    let name = || port.name.clone();
    let Some(given) = given else {
        return Err(BadInput::Missing { name: name(), expected: port.to_string() });
    };
    let Some(numbers) = given.data else {
        let reason = "has no \"data\" (the binary extension is not served)".to_owned();
        return Err(BadInput::Value { name: name(), reason });
    };
    let shape = given.shape.unwrap_or_else(|| numbers.shape.clone());
    Ok(Offer { port, shape, numbers, stated: given.datatype })
}

fn fitted(signature: &Signature, offers: Vec<Offer<'_>>, bare: bool) -> Result<Fitted, BadInput> {
    same_sizes(&offers)?;
    let items = if signature.batches() { items(&offers)? } else { 1 };
    let tensors = offers.into_iter().map(Offer::into_tensor).collect::<Result<_, _>>()?;
    Ok(Fitted { tensors, items, bare })
}

/// Every fixed dimension has its size, and open ones of one name agree across the inputs.
fn same_sizes(offers: &[Offer<'_>]) -> Result<(), BadInput> {
    let mut open: Vec<(&str, usize)> = Vec::new();
    for offer in offers {
        let Some(shape) = &offer.port.shape else { continue };
        if !offer.fits(shape) {
            return Err(offer.mismatch());
        }
        for (dim, size) in shape.iter().zip(&offer.shape) {
            let Dim::Open(name) = dim else { continue };
            match open.iter().find(|(known, _)| known == name) {
                Some((_, known)) if known != size => {
                    let reason = format!("dimension {name:?} is {size} here, {known} in another");
                    return Err(offer.wrong(reason + " input"));
                }
                Some(_) => {}
                None => open.push((name, *size)),
            }
        }
    }
    Ok(())
}

/// The number of items, which all inputs must share even if their dimensions bear other names.
fn items(offers: &[Offer<'_>]) -> Result<usize, BadInput> {
    let count = |offer: &Offer<'_>| offer.shape.first().copied().unwrap_or_default();
    let items = offers.first().map(count).unwrap_or_default();
    match offers.iter().find(|offer| count(offer) != items) {
        Some(odd) => Err(odd.wrong(format!(
            "brings {} items, {:?} brings {items}",
            count(odd),
            offers[0].port.name
        ))),
        None => Ok(items),
    }
}

impl Offer<'_> {
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
        let datatype = self.port.datatype;
        let data = self.numbers.narrow(datatype).map_err(|reason| self.wrong(reason))?;
        let count = self.numbers.len();
        let shape = self.shape.clone();
        Tensor::new(datatype, shape, data).ok_or_else(|| {
            self.wrong(format!("shape is {:?}, data has {count} elements", self.shape))
        })
    }

    fn mismatch(&self) -> BadInput {
        let datatype = self.stated.as_ref().map(|name| format!("{name} of ")).unwrap_or_default();
        let got = hint::clip(&format!("{datatype}shape {:?}", self.shape));
        BadInput::Mismatch { name: self.port.name.clone(), expected: self.port.to_string(), got }
    }

    fn wrong(&self, reason: String) -> BadInput {
        let reason = hint::clip(&reason);
        BadInput::Value { name: self.port.name.clone(), reason }
    }
}
