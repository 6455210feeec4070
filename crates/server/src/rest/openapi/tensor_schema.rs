//! JSON schemas and examples of tensors, from a model's signature. A schema admits only what the model takes:
//! where a size is open and several inputs have to agree about it, it shows the smallest.

use jitney_engine::local::{Dim, Signature, TensorSpec};
use jitney_engine::tensors::Datatype;
use serde_json::{Map, Value, json};

/// Larger tensors are described by their names only, since nobody types them.
const ELEMENTS_MAX: usize = 4096;

/// The body of a plain request: lists by input name.
pub(super) fn plain_schema(signature: &Signature) -> Value {
    let inputs = &signature.inputs;
    let properties: Map<String, Value> =
        inputs.iter().map(|spec| (spec.name.clone(), nested(spec, signature))).collect();
    let names: Vec<_> = inputs.iter().map(|spec| spec.name.as_str()).collect();
    json!({
        "type": "object", "required": names, "properties": properties, "additionalProperties": false,
    })
}

/// A body that the model takes: one item.
pub(super) fn example(signature: &Signature) -> Value {
    let value = |spec: &TensorSpec| {
        (spec.name.clone(), filled(&sizes(spec), element_example(spec.datatype)))
    };
    Value::Object(signature.inputs.iter().map(value).collect())
}

/// The body of a request of the Open Inference Protocol with one item, and an example of it.
pub(super) fn protocol_schema(signature: &Signature) -> (Value, Value) {
    let tensor = |spec: &TensorSpec| {
        let sizes = sizes(spec);
        let count: usize = sizes.iter().product();
        let data = match count <= ELEMENTS_MAX {
            true => json!({
                "type": "array", "items": protocol_element(spec.datatype), "minItems": count, "maxItems": count,
            }),
            false => json!({ "type": "array" }),
        };
        json!({
            "type": "object",
            "required": ["name", "shape", "datatype", "data"],
            "properties": {
                "name": { "type": "string", "enum": [spec.name] },
                "shape": { "type": "array", "items": { "type": "integer" }, "enum": [sizes] },
                "datatype": { "type": "string", "enum": [spec.datatype.as_str()] },
                "data": data,
            },
        })
    };
    let example = |spec: &TensorSpec| {
        let sizes = sizes(spec);
        let data =
            vec![element_example(spec.datatype); sizes.iter().product::<usize>().min(ELEMENTS_MAX)];
        json!({ "name": spec.name, "shape": sizes, "datatype": spec.datatype.as_str(), "data": data })
    };
    let inputs = &signature.inputs;
    let tensors: Vec<Value> = inputs.iter().map(tensor).collect();
    let examples: Vec<Value> = inputs.iter().map(example).collect();
    // Generators of clients do not know lists whose places differ: several inputs are told by their example.
    let items = match tensors.len() {
        1 => json!({ "type": "array", "items": tensors[0], "minItems": 1, "maxItems": 1 }),
        _ => json!({ "type": "array", "items": { "type": "object" }, "enum": [examples] }),
    };
    let schema = json!({
        "type": "object",
        "required": ["inputs"],
        "properties": { "inputs": items },
    });
    (schema, json!({ "inputs": examples }))
}

/// The metadata of a model.
pub(super) fn metadata() -> Value {
    let tensors = json!({ "type": "array", "items": {
        "type": "object",
        "required": ["name", "datatype", "shape"],
        "properties": {
            "name": { "type": "string" },
            "datatype": { "type": "string" },
            "shape": { "type": "array", "items": { "type": "integer" } },
        },
    } });
    json!({
        "type": "object",
        "required": ["name", "inputs", "outputs"],
        "properties": { "name": { "type": "string" }, "inputs": tensors, "outputs": tensors },
    })
}

/// An answer of the Open Inference Protocol.
pub(super) fn answer() -> Value {
    json!({
        "type": "object",
        "required": ["model_name", "outputs"],
        "properties": { "model_name": { "type": "string" }, "outputs": { "type": "array" } },
    })
}

/// Lists in lists, one level per dimension.
fn nested(spec: &TensorSpec, signature: &Signature) -> Value {
    let Some(shape) = &spec.shape else { return json!({}) };
    if sizes(spec).iter().product::<usize>() > ELEMENTS_MAX {
        return json!({ "type": "array", "description": spec.to_string() });
    }
    let mut schema = element_schema(spec.datatype);
    for (place, dim) in shape.iter().enumerate().rev() {
        let (least, most) = match dim {
            Dim::Fixed(size) => (*size, Some(*size)),
            Dim::Open(_) if is_ragged(place, signature) => (1, Some(1)),
            Dim::Open(_) => (1, None),
        };
        schema = json!({ "type": "array", "items": schema, "minItems": least });
        if let Some(most) = most {
            schema["maxItems"] = json!(most);
        }
    }
    schema
}

/// Whether an open size has to agree with that of another input, or of another row.
fn is_ragged(place: usize, signature: &Signature) -> bool {
    place > 0 || signature.inputs.len() > 1
}

/// The sizes of the smallest request.
fn sizes(spec: &TensorSpec) -> Vec<usize> {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => *size,
        Dim::Open(_) => 1,
    };
    spec.shape.as_ref().map_or_else(|| vec![1], |shape| shape.iter().map(size).collect())
}

fn filled(sizes: &[usize], element: Value) -> Value {
    sizes
        .iter()
        .rev()
        .fold(element, |inner, size| Value::Array(vec![inner; (*size).min(ELEMENTS_MAX)]))
}

fn element_example(datatype: Datatype) -> Value {
    match datatype {
        Datatype::Bool => json!(true),
        Datatype::Bytes => json!("text"),
        Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64 => json!(0.5),
        Datatype::Uint8
        | Datatype::Uint16
        | Datatype::Uint32
        | Datatype::Uint64
        | Datatype::Int8
        | Datatype::Int16
        | Datatype::Int32
        | Datatype::Int64 => json!(1),
    }
}

fn element_schema(datatype: Datatype) -> Value {
    let whole =
        |least: i64, most: i64| json!({ "type": "integer", "minimum": least, "maximum": most });
    // The first number that is rounded to infinity, and the last before it.
    let number = |above: f64| {
        let most = above.next_down();
        json!({ "type": "number", "minimum": -most, "maximum": most })
    };
    match datatype {
        Datatype::Bool => json!({ "type": "boolean" }),
        Datatype::Bytes => json!({ "type": "string" }),
        Datatype::Fp16 => number(65520.0),
        Datatype::Bf16 | Datatype::Fp32 => number(f64::from(f32::MAX) + 2.0_f64.powi(103)),
        Datatype::Fp64 => json!({ "type": "number" }),
        Datatype::Uint8 => whole(0, u8::MAX.into()),
        Datatype::Uint16 => whole(0, u16::MAX.into()),
        Datatype::Uint32 => whole(0, u32::MAX.into()),
        Datatype::Uint64 => whole(0, i64::MAX),
        Datatype::Int8 => whole(i8::MIN.into(), i8::MAX.into()),
        Datatype::Int16 => whole(i16::MIN.into(), i16::MAX.into()),
        Datatype::Int32 => whole(i32::MIN.into(), i32::MAX.into()),
        Datatype::Int64 => whole(i64::MIN, i64::MAX),
    }
}

/// The same for the protocol's JSON, whose reader rounds one more number down to the largest.
fn protocol_element(datatype: Datatype) -> Value {
    let mut schema = element_schema(datatype);
    if let (Datatype::Fp32, Some(most)) = (datatype, schema["maximum"].as_f64()) {
        schema["maximum"] = json!(most.next_up());
        schema["minimum"] = json!(-most.next_up());
    }
    // Numbers that are none stand as null.
    if matches!(datatype, Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64) {
        schema["nullable"] = json!(true);
    }
    schema
}

/// An expression in Python that makes the example, for a tensor that is too large to be typed.
pub(super) fn expression(signature: &Signature) -> String {
    let value = |spec: &TensorSpec| {
        let element = element_example(spec.datatype);
        let element = if element.is_boolean() { "True".to_owned() } else { element.to_string() };
        let lists =
            sizes(spec).iter().rev().fold(element, |inner, size| format!("[{inner}]*{size}"));
        format!("{:?}: {lists}", spec.name)
    };
    let inputs: Vec<String> = signature.inputs.iter().map(value).collect();
    format!("{{{}}}", inputs.join(", "))
}

/// How many elements the smallest request has.
pub(super) fn elements(signature: &Signature) -> usize {
    signature.inputs.iter().map(|spec| sizes(spec).iter().product::<usize>()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(dims: Vec<Dim>) -> Signature {
        let spec = TensorSpec { name: "x".to_owned(), datatype: Datatype::Fp32, shape: Some(dims) };
        Signature { inputs: vec![spec], outputs: Vec::new() }
    }

    #[test]
    fn an_example_has_the_shape_of_the_model() {
        let signature = signature(vec![Dim::Open("n".to_owned()), Dim::Fixed(2)]);
        assert_eq!(example(&signature), json!({ "x": [[0.5, 0.5]] }));
        let (_, infer) = protocol_schema(&signature);
        let tensor =
            json!({ "name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0.5, 0.5] });
        assert_eq!(infer, json!({ "inputs": [tensor] }));
        assert_eq!(expression(&signature), r#"{"x": [[0.5]*2]*1}"#);
    }

    #[test]
    fn a_schema_admits_any_number_of_items_and_nothing_else() {
        let signature = signature(vec![Dim::Open("n".to_owned()), Dim::Fixed(2)]);
        let row = &plain_schema(&signature)["properties"]["x"];
        assert_eq!((&row["minItems"], row.get("maxItems")), (&json!(1), None));
        assert_eq!((&row["items"]["minItems"], &row["items"]["maxItems"]), (&json!(2), &json!(2)));
    }
}
