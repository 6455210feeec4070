//! Requests in tensors to one endpoint of a definition: whether they fit what it declares, how many items they
//! bring, and which of them may be joined.
//!
//! Names, and the datatypes and shapes that are declared, are checked before the request waits, so that
//! one that does not fit is rejected alone. Its worker checks what only it knows.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::local::{Dim, Signature, TensorSpec};
use crate::store::{ItemForm, PackedTensor, PackedTensors};
use crate::tensors::{Datatype, NamedTensor, TensorRequest};

/// Dimensions that arrays have room for in Python.
const RANK_MAX: usize = 32;
/// Items of a request without any element; otherwise its bytes are the limit.
const EMPTY_ITEMS_MAX: usize = 1 << 16;

/// The tensors of an endpoint.
pub(super) struct EndpointTensors {
    pub(super) signature: Signature,
    declared: PackedTensors,
}

impl EndpointTensors {
    /// None where a datatype is unknown here.
    pub(super) fn new(declared: PackedTensors) -> Option<Self> {
        Some(Self { signature: signature(&declared)?, declared })
    }

    /// Whether a request fits.
    ///
    /// # Errors
    /// A sentence that names the model, what it takes and what came.
    pub(super) fn check(&self, model: &str, request: &TensorRequest) -> Result<(), String> {
        for (place, tensor) in request.inputs.iter().enumerate() {
            let name = tensor.name();
            if request.inputs[..place].iter().any(|before| before.name() == name) {
                return Err(format!("Model {model:?}: input {name:?} came twice."));
            }
            if let Some(why) = self.misfit(tensor) {
                return Err(format!("Model {model:?}{why}."));
            }
        }
        let given = |name: &str| request.inputs.iter().any(|tensor| tensor.name() == name);
        let specs = self.declared.inputs.iter().zip(&self.signature.inputs);
        let missing = specs.filter(|(one, _)| one.required).find(|(one, _)| !given(&one.name));
        match missing {
            Some((one, spec)) => {
                Err(format!("Model {model:?} needs input {:?}, {spec}; it did not come.", one.name))
            }
            None => Ok(()),
        }
    }

    /// Why a tensor is none of the inputs, as the end of a sentence about the model.
    fn misfit(&self, tensor: &NamedTensor) -> Option<String> {
        let (name, shape) = (tensor.name(), tensor.shape());
        let came = || format!("{} of shape {shape:?} came", tensor.datatype());
        match self.signature.input(name) {
            Some((place, spec)) if self.declared.inputs[place].checked && !fits(spec, tensor) => {
                return Some(format!(": input {name:?} is {spec}, and {}", came()));
            }
            None if !self.declared.takes_any => {
                let known = self.signature.inputs.iter();
                let known: Vec<_> = known.map(|spec| format!("{:?}, {spec}", spec.name)).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join("; ") };
                return Some(format!(" has no input {name:?}; it takes {known}"));
            }
            Some(_) | None => {}
        }
        if shape.len() > RANK_MAX {
            return Some(format!(": input {name:?} has more than {RANK_MAX} dimensions"));
        }
        let too_many = tensor.elements() == 0 && shape.iter().any(|size| *size > EMPTY_ITEMS_MAX);
        too_many.then(|| format!(": input {name:?} has no elements; {}", came()))
    }

    /// How many items a request brings.
    pub(super) fn items(&self, request: &TensorRequest) -> Option<u32> {
        let rows = match self.declared.items {
            ItemForm::Whole => None,
            ItemForm::Rows => {
                let (tensor, _) = self.arrays(request).next()?;
                self.batch_dim(tensor).map(|dim| tensor.shape()[dim])
            }
            ItemForm::Elements => {
                let tensor = request.inputs.first()?;
                let rank =
                    self.signature.input(tensor.name()).and_then(|(_, it)| it.shape.as_ref());
                let has_batch = tensor.shape().len() >= rank.map_or(1, Vec::len);
                tensor.shape().first().copied().filter(|_| has_batch)
            }
        };
        rows.map(|rows| u32::try_from(rows).unwrap_or(u32::MAX))
    }

    /// A number that is the same for requests that can be joined: everything but their rows is equal.
    pub(super) fn bucket(&self, request: &TensorRequest) -> Option<u64> {
        let mut arrays = self.arrays(request).peekable();
        arrays.peek()?;
        let mut hasher = DefaultHasher::new();
        for (tensor, declared) in arrays {
            let datatype = declared.unwrap_or(tensor.datatype());
            (tensor.name(), datatype, tensor.shape().len()).hash(&mut hasher);
            let batch_dim = self.batch_dim(tensor);
            let others =
                tensor.shape().iter().enumerate().filter(|(dim, _)| Some(*dim) != batch_dim);
            others.for_each(|(_, size)| size.hash(&mut hasher));
        }
        Some(hasher.finish())
    }

    /// The inputs whose rows are joined, with the datatype that they are cast to.
    fn arrays<'a>(
        &'a self,
        request: &'a TensorRequest,
    ) -> impl Iterator<Item = (&'a NamedTensor, Option<Datatype>)> {
        request.inputs.iter().filter_map(|tensor| {
            let (place, spec) = self.signature.input(tensor.name())?;
            let PackedTensor { rows, checked, .. } = self.declared.inputs[place];
            rows.then_some((tensor, checked.then_some(spec.datatype)))
        })
    }

    fn batch_dim(&self, tensor: &NamedTensor) -> Option<usize> {
        let (rank, dim) = (tensor.shape().len(), self.declared.batch_dim);
        let distance = usize::try_from(dim.unsigned_abs()).ok()?;
        let dim = if dim < 0 { rank.checked_sub(distance)? } else { distance };
        Some(dim).filter(|dim| *dim < rank)
    }
}

/// What clients are told; none where a datatype is unknown here.
pub(crate) fn signature(declared: &PackedTensors) -> Option<Signature> {
    let specs = |tensors: &[PackedTensor]| tensors.iter().map(spec).collect::<Option<Vec<_>>>();
    Some(Signature { inputs: specs(&declared.inputs)?, outputs: specs(&declared.outputs)? })
}

fn spec(declared: &PackedTensor) -> Option<TensorSpec> {
    let dim = |(place, size): (usize, &i64)| match usize::try_from(*size) {
        Ok(size) => Dim::Fixed(size),
        Err(_) => Dim::Open(format!("unnamed_{place}")),
    };
    Some(TensorSpec {
        name: declared.name.clone(),
        datatype: Datatype::parse(&declared.datatype)?,
        shape: Some(declared.shape.iter().enumerate().map(dim).collect()),
    })
}

fn fits(spec: &TensorSpec, tensor: &NamedTensor) -> bool {
    let fits = |(dim, size): (&Dim, &usize)| match dim {
        Dim::Fixed(fixed) => fixed == size,
        Dim::Open(_) => true,
    };
    let shape = spec.shape.as_deref().unwrap_or_default();
    spec.datatype.admits(tensor.datatype())
        && shape.len() == tensor.shape().len()
        && shape.iter().zip(tensor.shape()).all(fits)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tensors(items: &str) -> EndpointTensors {
        let x = json!({"name": "x", "datatype": "FP32", "shape": [-1, 3], "required": true,
                       "rows": items == "rows", "checked": true});
        let scale = json!({"name": "scale", "datatype": "FP64", "shape": [1]});
        let declared: Value = json!({"inputs": [x, scale], "outputs": [], "items": items});
        EndpointTensors::new(serde_json::from_value(declared).expect("reads")).expect("datatypes")
    }

    fn request(inputs: &[(&str, Datatype, &[usize])]) -> TensorRequest {
        let tensor = |(name, datatype, shape): &(&str, Datatype, &[usize])| {
            let bytes = datatype.width().expect("a width") * shape.iter().product::<usize>();
            NamedTensor::new(*name, *datatype, *shape, vec![0; bytes].into()).expect("fills it")
        };
        TensorRequest { inputs: inputs.iter().map(tensor).collect(), outputs: Vec::new() }
    }

    #[test]
    fn what_does_not_fit_is_told_with_what_would() {
        use Datatype::{Fp32, Fp64, Int64};
        let check =
            |inputs: &[(&str, Datatype, &[usize])]| tensors("rows").check("m", &request(inputs));
        assert_eq!(check(&[("x", Fp32, &[2, 3])]), Ok(()));
        assert_eq!(
            check(&[("x", Fp64, &[0, 3]), ("scale", Int64, &[])]),
            Ok(()),
            "cast, unchecked"
        );
        let x = ("x", Fp32, &[1, 3][..]);
        let wrong = [
            (check(&[]), r#"Model "m" needs input "x", FP32 of shape [n, 3]; it did not come."#),
            (check(&[x, x]), r#"Model "m": input "x" came twice."#),
            (
                check(&[x, ("y", Fp32, &[1])]),
                r#"no input "y"; it takes "x", FP32 of shape [n, 3]; "scale", FP64 of shape [1]."#,
            ),
            (
                check(&[("x", Int64, &[1, 3])]),
                r#"Model "m": input "x" is FP32 of shape [n, 3], and INT64 of shape [1, 3] came."#,
            ),
            (check(&[("x", Fp32, &[1, 4])]), "[n, 3], and FP32 of shape [1, 4] came."),
            (check(&[("x", Fp32, &[3])]), "FP32 of shape [3] came."),
            (check(&[x, ("scale", Fp32, &[1; 33])]), "more than 32 dimensions."),
            (check(&[x, ("scale", Fp32, &[usize::MAX, 0])]), "has no elements"),
        ];
        for (checked, expected) in wrong {
            let sentence = checked.expect_err(expected);
            assert!(sentence.contains(expected), "{sentence}");
        }
    }

    #[test]
    fn items_are_rows_elements_or_the_request() {
        let count = |items: &str, shape: &[usize]| {
            tensors(items).items(&request(&[("x", Datatype::Fp32, shape)]))
        };
        assert_eq!(count("rows", &[7, 3]), Some(7));
        assert_eq!([count("elements", &[7, 3]), count("elements", &[3])], [Some(7), None]);
        assert_eq!(count("whole", &[7, 3]), None);
    }

    #[test]
    fn requests_that_can_be_joined_have_one_bucket() {
        use Datatype::{Fp16, Fp32};
        let bucket =
            |inputs: &[(&str, Datatype, &[usize])]| tensors("rows").bucket(&request(inputs));
        let two = bucket(&[("x", Fp32, &[2, 3])]);
        assert!(two.is_some());
        assert_eq!(two, bucket(&[("x", Fp32, &[5, 3]), ("scale", Fp32, &[1])]));
        assert_eq!(two, bucket(&[("x", Fp16, &[5, 3])]), "it is cast");
        assert_ne!(two, bucket(&[("x", Fp32, &[2, 4])]));
        assert_ne!(two, bucket(&[("x", Fp32, &[2, 3, 1])]));
        assert_eq!(tensors("elements").bucket(&request(&[("x", Fp32, &[2, 3])])), None);
    }
}
