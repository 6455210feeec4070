//! Reads a JSON body into named numbers, in whichever of the three forms it came: the Open Inference
//! Protocol's, an object of lists by input name, or one bare list. It reads once, front to back, and
//! keeps nothing that the model does not know. Whether the numbers fit the model is checked in `fit`.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::numbers::{Level, Numbers};
use jitney_engine::local::Signature;

/// A value for one input.
#[derive(Debug, Deserialize)]
pub(super) struct NamedNumbers {
    /// The input's name.
    pub name: String,
    /// The shape that the client states; lists speak for themselves.
    pub shape: Option<Vec<usize>>,
    /// The element type that the client states.
    pub datatype: Option<String>,
    /// Absent when the client uses the protocol's binary extension.
    pub data: Option<Numbers>,
}

impl NamedNumbers {
    /// Numbers whose lists speak for themselves.
    pub(super) fn plain(name: String, numbers: Numbers) -> Self {
        Self { name, shape: None, datatype: None, data: Some(numbers) }
    }
}

#[derive(Debug, Deserialize)]
struct OutputName {
    name: String,
}

/// A body, read.
#[derive(Debug)]
pub(super) enum JsonBody {
    /// The Open Inference Protocol.
    OpenInference { id: Option<String>, values: Vec<NamedNumbers>, outputs: Vec<String> },
    /// An object of lists by input name; `unknown` are the keys that are no inputs.
    Named { values: Vec<NamedNumbers>, unknown: Vec<String> },
    /// One list.
    List(Numbers),
}

/// Reads a body. With `protocol` set a key `inputs` is the protocol's even if the model has an
/// input of that name.
pub(super) fn read(json: &[u8], signature: &Signature, protocol: bool) -> Result<JsonBody, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let body = deserializer.deserialize_any(BodyReader { signature, protocol });
    body.and_then(|body| deserializer.end().map(|()| body)).map_err(|error| error.to_string())
}

#[derive(Clone, Copy)]
struct BodyReader<'a> {
    signature: &'a Signature,
    protocol: bool,
}

/// What has been read of an object so far.
#[derive(Default)]
struct BodyObject {
    id: Option<String>,
    inputs: Option<Vec<NamedNumbers>>,
    outputs: Vec<OutputName>,
    named: Vec<NamedNumbers>,
    unknown: Vec<String>,
}

impl BodyReader<'_> {
    fn entry<'de, A: MapAccess<'de>>(
        self,
        into: &mut BodyObject,
        key: String,
        map: &mut A,
    ) -> Result<(), A::Error> {
        if !self.protocol && self.signature.input(&key).is_some() {
            let data = map.next_value::<Numbers>();
            let data = data.map_err(|error| Error::custom(format!("input {key:?}: {error}")))?;
            into.named.push(NamedNumbers::plain(key, data));
            return Ok(());
        }
        match key.as_str() {
            "inputs" if into.inputs.is_some() => return Err(Error::duplicate_field("inputs")),
            "inputs" => into.inputs = Some(map.next_value()?),
            "id" => into.id = map.next_value()?,
            "outputs" => into.outputs = map.next_value()?,
            _ => {
                map.next_value::<IgnoredAny>()?;
                into.unknown.push(key);
            }
        }
        Ok(())
    }
}

impl BodyObject {
    fn finish<E: Error>(self) -> Result<JsonBody, E> {
        let Self { id, inputs, outputs, named: values, mut unknown } = self;
        let Some(inputs) = inputs else {
            unknown.extend(id.map(|_| "id".to_owned()));
            return Ok(JsonBody::Named { values, unknown });
        };
        if let Some(values) = values.first() {
            let name = &values.name;
            return Err(E::custom(format!(
                "{name:?} stands beside \"inputs\": use one of the two"
            )));
        }
        let outputs = outputs.into_iter().map(|requested| requested.name).collect();
        Ok(JsonBody::OpenInference { id, values: inputs, outputs })
    }
}

impl<'de> Visitor<'de> for BodyReader<'_> {
    type Value = JsonBody;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of numbers or an object of inputs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<JsonBody, A::Error> {
        let mut numbers = Numbers::default();
        Level { into: &mut numbers, depth: 0 }.visit_seq(list)?;
        Ok(JsonBody::List(numbers))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonBody, A::Error> {
        let mut object = BodyObject::default();
        while let Some(key) = map.next_key::<String>()? {
            self.entry(&mut object, key, &mut map)?;
        }
        object.finish()
    }
}
