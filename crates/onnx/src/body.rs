//! Reads a JSON body into named numbers, in whichever of the three forms it came: the Open Inference
//! Protocol's, an object of lists by input name, or one bare list. It reads once, front to back, and
//! keeps nothing that the model does not know. What the numbers mean is the intake's business.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::numbers::{Level, Numbers};
use jitney_engine::local::Signature;

/// A value for one input.
#[derive(Debug, Deserialize)]
pub(super) struct Given {
    /// The input's name.
    pub name: String,
    /// The shape that the client states; lists speak for themselves.
    pub shape: Option<Vec<usize>>,
    /// The element type that the client states.
    pub datatype: Option<String>,
    /// Absent when the client uses the protocol's binary extension.
    pub data: Option<Numbers>,
}

#[derive(Debug, Deserialize)]
struct Wanted {
    name: String,
}

/// A body, read.
#[derive(Debug)]
pub(super) enum Body {
    /// The Open Inference Protocol.
    OpenInference { id: Option<String>, given: Vec<Given>, outputs: Vec<String> },
    /// An object of lists by input name; `unknown` are the keys that are no inputs.
    Named { given: Vec<Given>, unknown: Vec<String> },
    /// One list.
    List(Numbers),
}

/// Reads a body. With `protocol` set a key `inputs` is the protocol's even if the model has an
/// input of that name.
pub(super) fn read(json: &[u8], signature: &Signature, protocol: bool) -> Result<Body, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let body = Reader { signature, protocol }.deserialize(&mut deserializer);
    body.and_then(|body| deserializer.end().map(|()| body)).map_err(|error| error.to_string())
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    signature: &'a Signature,
    protocol: bool,
}

/// What has been read of an object so far.
#[derive(Default)]
struct Object {
    id: Option<String>,
    inputs: Option<Vec<Given>>,
    outputs: Vec<Wanted>,
    named: Vec<Given>,
    unknown: Vec<String>,
}

impl Reader<'_> {
    fn entry<'de, A: MapAccess<'de>>(
        self,
        into: &mut Object,
        key: String,
        map: &mut A,
    ) -> Result<(), A::Error> {
        if !self.protocol && self.signature.input(&key).is_some() {
            let data = map.next_value::<Numbers>();
            let data = data.map_err(|error| Error::custom(format!("input {key:?}: {error}")))?;
            into.named.push(Given { name: key, shape: None, datatype: None, data: Some(data) });
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

impl Object {
    fn finish<E: Error>(self) -> Result<Body, E> {
        let Self { id, inputs, outputs, named: given, mut unknown } = self;
        let Some(inputs) = inputs else {
            unknown.extend(id.map(|_| "id".to_owned()));
            return Ok(Body::Named { given, unknown });
        };
        if let Some(given) = given.first() {
            let name = &given.name;
            return Err(E::custom(format!(
                "{name:?} stands beside \"inputs\": use one of the two"
            )));
        }
        let outputs = outputs.into_iter().map(|wanted| wanted.name).collect();
        Ok(Body::OpenInference { id, given: inputs, outputs })
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Body;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Body, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Body;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of numbers or an object of inputs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Body, A::Error> {
        let mut numbers = Numbers::default();
        Level { into: &mut numbers, depth: 0 }.visit_seq(list)?;
        Ok(Body::List(numbers))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Body, A::Error> {
        let mut object = Object::default();
        while let Some(key) = map.next_key::<String>()? {
            self.entry(&mut object, key, &mut map)?;
        }
        object.finish()
    }
}
