//! Compares the inputs and outputs that a configuration declares with those that the model has.

use super::{Dim, Signature, TensorSpec};
use crate::store::{DeclaredControl, DeclaredState, DeclaredTensor, DeclaredTensors};

/// Whether a model of Python's libraries is the declared one; a sentence if not. Clients see its tensors as they are.
pub(crate) fn check_as_is(declared: &DeclaredTensors, model: &Signature) -> Result<(), String> {
    let DeclaredTensors { inputs, outputs, controls, states, file, .. } = declared;
    let reshaped = inputs.iter().chain(outputs).find(|tensor| tensor.reshape.is_some());
    let reshaped = reshaped.map(|tensor| (tensor.line, "reshape"));
    let control = controls.first().map(|control| (control.line, "control_input"));
    let state = states.first().map(|state| (state.input.line, "state"));
    let unfit = reshaped.or(control).or(state).map(|(line, field)| {
        (line, format!("{field} is for ONNX models and those of the Python backend"))
    });
    let outcome = unfit.map_or_else(|| check(declared, model), Err);
    outcome.map_err(|(line, why)| format!("{file}:{line}: {why}"))
}

/// Whether the model is the declared one; the line and a sentence if not.
pub(super) fn check(declared: &DeclaredTensors, model: &Signature) -> Result<(), (usize, String)> {
    let DeclaredTensors { inputs, outputs, batched, controls, states, .. } = declared;
    for (kind, declared, specs) in
        [("input", inputs, &model.inputs), ("output", outputs, &model.outputs)]
    {
        for tensor in declared {
            fits(kind, tensor, specs, *batched).map_err(|why| (tensor.line, why))?;
        }
    }
    for control in controls {
        let DeclaredControl { name, datatype, line, .. } = control;
        let tensor =
            DeclaredTensor { name: name.clone(), datatype: datatype.clone(), ..Default::default() };
        fits("input", &tensor, &model.inputs, *batched).map_err(|why| (*line, why))?;
    }
    for DeclaredState { input, output } in states {
        fits("input", input, &model.inputs, *batched).map_err(|why| (input.line, why))?;
        fits("output", output, &model.outputs, *batched).map_err(|why| (output.line, why))?;
    }
    let is_declared = |spec: &&TensorSpec| {
        declared.is_made(&spec.name) || inputs.iter().any(|tensor| tensor.name == spec.name)
    };
    match (inputs.last(), model.inputs.iter().find(|spec| !is_declared(spec))) {
        (Some(last), Some(missing)) => {
            Err((last.line, format!("the model also has the input {:?} ({missing})", missing.name)))
        }
        (None, _) | (_, None) => Ok(()),
    }
}

fn fits(
    kind: &str,
    tensor: &DeclaredTensor,
    specs: &[TensorSpec],
    batched: bool,
) -> Result<(), String> {
    let DeclaredTensor { name, datatype, dims, reshape, .. } = tensor;
    let Some(spec) = specs.iter().find(|spec| spec.name == *name) else {
        let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
        return Err(format!("the model has no {kind} {name:?}; it has {}", names.join(", ")));
    };
    if !datatype.is_empty() && datatype != spec.datatype.as_str() {
        return Err(format!(
            "the {kind} {name:?} is declared as {datatype}, and the model's is {spec}"
        ));
    }
    let (Some(dims), Some(shape)) = (reshape.as_ref().or(dims.as_ref()), &spec.shape) else {
        return Ok(());
    };
    let dims: Vec<i64> = batched.then_some(-1).into_iter().chain(dims.iter().copied()).collect();
    let suits = |(declared, own): (&i64, &Dim)| match own {
        Dim::Open(_) => true,
        Dim::Fixed(size) => i64::try_from(*size) == Ok(*declared),
    };
    if dims.len() == shape.len() && dims.iter().zip(shape).all(suits) {
        return Ok(());
    }
    let first = if batched { " (with the batch as the first dimension)" } else { "" };
    Err(format!(
        "the {kind} {name:?} is declared with dims {dims:?}{first}, and the model's is {spec}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::Datatype;

    fn model() -> Signature {
        let spec = |name: &str, shape| TensorSpec {
            name: name.to_owned(),
            datatype: Datatype::Fp32,
            shape,
        };
        let open = Dim::Open("n".to_owned());
        Signature {
            inputs: vec![spec("x", Some(vec![open.clone(), Dim::Fixed(3)]))],
            outputs: vec![spec("y", Some(vec![open, Dim::Fixed(2)]))],
        }
    }

    fn tensor(name: &str, datatype: &str, dims: &[i64]) -> DeclaredTensor {
        let (name, datatype, dims) = (name.to_owned(), datatype.to_owned(), Some(dims.to_vec()));
        DeclaredTensor { name, datatype, dims, line: 7, ..Default::default() }
    }

    #[test]
    fn a_declaration_has_to_fit_the_model() {
        for (input, batched, why) in [
            (tensor("x", "FP32", &[3]), true, None),
            (tensor("x", "FP32", &[-1, 3]), false, None),
            (tensor("x", "FP32", &[5, 3]), false, None),
            (tensor("z", "FP32", &[3]), true, Some("the model has no input \"z\"; it has x")),
            (
                tensor("x", "INT64", &[3]),
                true,
                Some(
                    "the input \"x\" is declared as INT64, and the model's is FP32 of shape [n, 3]",
                ),
            ),
            (
                tensor("x", "FP32", &[4]),
                true,
                Some(
                    "the input \"x\" is declared with dims [-1, 4] (with the batch as the first dimension), \
                     and the model's is FP32 of shape [n, 3]",
                ),
            ),
        ] {
            let declared = DeclaredTensors { inputs: vec![input], batched, ..Default::default() };
            let expected = why.map(|why| (7, why.to_owned()));
            assert_eq!(check(&declared, &model()).err(), expected);
        }
        let outputs = vec![tensor("y", "FP32", &[2])];
        let only = DeclaredTensors { outputs, batched: true, ..Default::default() };
        assert_eq!(check(&only, &model()), Ok(()));
    }
}
