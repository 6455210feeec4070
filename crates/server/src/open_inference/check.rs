//! Compares a request with what its model takes. Every sentence names the model, what it expects and
//! what came, so that the client need not look anything up.

use jitney_engine::local::{Dim, Signature, TensorSpec};
use jitney_engine::tensors::NamedTensor;

use super::elements;

/// The inputs in the types that the model declares.
pub(super) fn inputs(
    model: &str,
    signature: &Signature,
    given: &[&NamedTensor],
) -> Result<Vec<NamedTensor>, String> {
    for (place, tensor) in given.iter().enumerate() {
        if given[..place].iter().any(|other| other.name() == tensor.name()) {
            return Err(format!("Model {model:?}: input {:?} came twice.", tensor.name()));
        }
    }
    let unknown = given.iter().find(|tensor| signature.input(tensor.name()).is_none());
    if let Some(tensor) = unknown {
        return Err(format!(
            "Model {model:?} has no input {:?}; it takes {}.",
            tensor.name(),
            listed(&signature.inputs)
        ));
    }
    let missing =
        signature.inputs.iter().find(|spec| given.iter().all(|tensor| tensor.name() != spec.name));
    if let Some(spec) = missing {
        let names: Vec<_> = given.iter().map(|tensor| format!("{:?}", tensor.name())).collect();
        let came = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(format!("Model {model:?} needs input {:?}, {spec}; {came} came.", spec.name));
    }
    let fitted = given.iter().filter_map(|tensor| {
        let (_, spec) = signature.input(tensor.name())?;
        Some(fit(model, spec, tensor))
    });
    let fitted: Vec<NamedTensor> = fitted.collect::<Result<_, _>>()?;
    if signature.batches()
        && let [first, others @ ..] = fitted.as_slice()
        && let Some(other) = others.iter().find(|it| it.shape().first() != first.shape().first())
    {
        return Err(format!(
            "Model {model:?}: input {:?} has {} rows and input {:?} has {}; all inputs of a request \
             have as many.",
            first.name(),
            rows(first),
            other.name(),
            rows(other)
        ));
    }
    Ok(fitted)
}

fn rows(tensor: &NamedTensor) -> usize {
    tensor.shape().first().copied().unwrap_or(1)
}

fn fit(model: &str, spec: &TensorSpec, tensor: &NamedTensor) -> Result<NamedTensor, String> {
    if !spec.datatype.admits(tensor.datatype()) || !fits(spec, tensor.shape()) {
        return Err(format!(
            "Model {model:?}: input {:?} is {spec}, and {} of shape {:?} came.",
            spec.name,
            tensor.datatype(),
            tensor.shape()
        ));
    }
    elements::convert(tensor, spec.datatype)
        .map_err(|why| format!("Model {model:?}: input {:?}: {why}.", spec.name))
}

fn fits(spec: &TensorSpec, shape: &[usize]) -> bool {
    let Some(dims) = &spec.shape else { return true };
    let fits = |(dim, size): (&Dim, &usize)| match dim {
        Dim::Fixed(fixed) => fixed == size,
        Dim::Open(_) => true,
    };
    dims.len() == shape.len() && dims.iter().zip(shape).all(fits)
}

/// Every output that is asked for is one of the model's, and asked for once.
pub(super) fn outputs(model: &str, signature: &Signature, asked: &[&str]) -> Result<(), String> {
    for (place, name) in asked.iter().enumerate() {
        if signature.outputs.iter().all(|spec| spec.name != *name) {
            let known = listed(&signature.outputs);
            return Err(format!("Model {model:?} has no output {name:?}; it gives {known}."));
        }
        if asked[..place].contains(name) {
            return Err(format!("Model {model:?}: output {name:?} is asked for twice."));
        }
    }
    Ok(())
}

/// Names and types, as many as a sentence has room for.
fn listed(specs: &[TensorSpec]) -> String {
    const SHOWN: usize = 8;
    let mut shown: Vec<String> =
        specs.iter().take(SHOWN).map(|spec| format!("{:?}, {spec}", spec.name)).collect();
    if specs.len() > SHOWN {
        shown.push(format!("and {} more", specs.len() - SHOWN));
    }
    shown.join("; ")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use jitney_engine::tensors::Datatype;

    use super::*;

    fn spec(name: &str, datatype: Datatype, width: usize) -> TensorSpec {
        let shape = vec![Dim::Open("batch".to_owned()), Dim::Fixed(width)];
        TensorSpec { name: name.to_owned(), datatype, shape: Some(shape) }
    }

    fn tensor(name: &str, datatype: Datatype, shape: [usize; 2]) -> NamedTensor {
        let bytes = shape[0] * shape[1] * datatype.width().expect("numbers");
        NamedTensor::new(name, datatype, shape, Bytes::from(vec![0; bytes])).expect("fits")
    }

    #[test]
    fn what_does_not_fit_is_told_with_what_would() {
        let inputs_of = vec![spec("x", Datatype::Fp32, 4), spec("y", Datatype::Int64, 1)];
        let signature =
            Signature { inputs: inputs_of, outputs: vec![spec("z", Datatype::Fp32, 2)] };
        let x = || tensor("x", Datatype::Fp32, [2, 4]);
        let y = |rows| tensor("y", Datatype::Int64, [rows, 1]);
        let check = |given: &[NamedTensor]| {
            inputs("m", &signature, &given.iter().collect::<Vec<_>>()).map(|it| it.len())
        };
        assert_eq!(check(&[y(2), x()]), Ok(2));
        assert_eq!(check(&[tensor("y", Datatype::Int32, [2, 1]), x()]), Ok(2), "as good");
        for (given, expected) in [
            (vec![x()], r#"Model "m" needs input "y", INT64 of shape [n, 1]; "x" came."#),
            (vec![], r#"Model "m" needs input "x", FP32 of shape [n, 4]; none came."#),
            (vec![x(), x()], r#"Model "m": input "x" came twice."#),
            (
                vec![x(), y(2), tensor("w", Datatype::Fp32, [1, 1])],
                r#"Model "m" has no input "w"; it takes "x", FP32 of shape [n, 4]; "y", INT64 of shape [n, 1]."#,
            ),
            (
                vec![tensor("x", Datatype::Int32, [2, 4]), y(2)],
                r#"Model "m": input "x" is FP32 of shape [n, 4], and INT32 of shape [2, 4] came."#,
            ),
            (
                vec![tensor("x", Datatype::Fp32, [2, 3]), y(2)],
                r#"Model "m": input "x" is FP32 of shape [n, 4], and FP32 of shape [2, 3] came."#,
            ),
            (
                vec![x(), y(3)],
                r#"Model "m": input "x" has 2 rows and input "y" has 3; all inputs of a request have as many."#,
            ),
        ] {
            assert_eq!(check(&given), Err(expected.to_owned()));
        }
        let ask = |names: &[&str]| outputs("m", &signature, names);
        assert_eq!(ask(&["z"]), Ok(()));
        let twice = Err(r#"Model "m": output "z" is asked for twice."#.to_owned());
        assert_eq!(ask(&["z", "z"]), twice);
        let unknown = r#"Model "m" has no output "q"; it gives "z", FP32 of shape [n, 2]."#;
        assert_eq!(ask(&["q"]), Err(unknown.to_owned()));
    }
}
