//! How large a request to a definition is, seen before it waits: its items, its cost and its bucket.
//!
//! Definitions are called with whole values, which only their workers decode. Here the same bytes are
//! looked at once, from the outside: the heads of arrays, the brackets of JSON, the lengths of
//! texts. Only endpoints whose requests may differ are looked at. Nothing here rejects a request: what
//! cannot be read counts as one item, and the worker, which reads properly, says what is wrong.

mod array_file;
mod extent;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod json;
mod values;

use self::extent::Extent;
use self::json::{JsonReader, characters};
use self::values::ArgumentName;
use crate::call::{CALL_PARAMETER, Input, Parameter, ValueBytes};
use crate::store::{RequestSizes, SizeExpression, SizeFactor, SizedParam, ValueForm};
use crate::tensors::{self, Datatype, TensorRequest};

/// The parameter that holds a plain body.
const BODY: &str = "body";
const JSON_TYPE: &str = "application/json";
/// The longest text that is read from one end to the other, since that keeps other requests of the same
/// thread waiting: 40 ms or so. The heads of arrays are read whatever follows them.
const SCAN_BYTES_MAX: usize = 32 << 20;

/// What was seen of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestSize {
    /// How many items it brings.
    pub(crate) items: Option<u32>,
    /// What it costs.
    pub(crate) cost: Option<u64>,
    /// The bucket of requests that it may share a batch with.
    pub(crate) bucket: Option<u64>,
}

/// Reads the sizes of requests to one endpoint.
#[derive(Debug)]
pub(crate) struct SizeReader {
    sizes: RequestSizes,
    /// Parameters whose size in JSON or text counts. Without a hint only arrays have rows, and neither
    /// of the two brings one.
    plain: Vec<bool>,
    /// Parameters whose size counts when they come as arrays.
    arrays: Vec<bool>,
}

impl SizeReader {
    pub(crate) fn new(sizes: RequestSizes) -> Self {
        let expressions = sizes.cost.iter().chain(&sizes.bucket);
        let factors: Vec<_> = expressions.flat_map(|expression| &expression.0).copied().collect();
        let named = |place: usize| {
            factors.iter().any(|it| matches!(it, SizeFactor::Dim { param, .. } if *param == place))
        };
        let places = || sizes.params.iter().enumerate();
        let plain = places().map(|(place, it)| named(place) || it.rows && holds_rows(it.form));
        let arrays = places().map(|(place, it)| named(place) || it.rows);
        let (plain, arrays) = (plain.collect(), arrays.collect());
        Self { sizes, plain, arrays }
    }

    /// What can be seen of a request.
    pub(crate) fn read(&self, input: &Input) -> RequestSize {
        if !self.plain.contains(&true) && !input.parameters.iter().any(holds_arrays) {
            return RequestSize::default();
        }
        let extents = self.extents(&input.parameters);
        let value = |it: &Option<SizeExpression>| it.as_ref().map(|it| evaluate(it, &extents));
        RequestSize {
            items: self.items(&extents),
            cost: value(&self.sizes.cost).map(|cost| cost.max(1)),
            bucket: value(&self.sizes.bucket),
        }
    }

    /// The cost and the bucket of a request in tensors. Of texts the longest counts; of other elements
    /// what lies behind the first dimension, since that only counts them.
    pub(crate) fn read_tensors(&self, request: &TensorRequest) -> RequestSize {
        let extent = |param: &SizedParam| {
            let tensor = request.inputs.iter().find(|tensor| *tensor.name() == *param.name)?;
            let sizes = tensor.shape().iter().map(|size| *size as u64);
            Some(match (holds_rows(param.form), tensor.datatype()) {
                (true, _) => Extent::of_array(sizes),
                (false, Datatype::Bytes) => {
                    let are_bytes = param.form == ValueForm::Bytes;
                    let length =
                        |it: &[u8]| if are_bytes { it.len() as u64 } else { characters(it) };
                    let lengths = tensors::strings(tensor.data()).map(length);
                    Extent::of_length(lengths.max().unwrap_or(0))
                }
                (false, _) => Extent::of_array(sizes.skip(1)),
            })
        };
        let extents: Vec<_> = self.sizes.params.iter().map(extent).collect();
        let value = |it: &Option<SizeExpression>| it.as_ref().map(|it| evaluate(it, &extents));
        RequestSize {
            items: None,
            cost: value(&self.sizes.cost).map(|cost| cost.max(1)),
            bucket: value(&self.sizes.bucket),
        }
    }

    fn items(&self, extents: &[Option<Extent>]) -> Option<u32> {
        let with_rows = self.sizes.params.iter().zip(extents).filter(|(param, _)| param.rows);
        let mut rows = with_rows.filter_map(|(param, extent)| {
            let extent = extent.filter(|it| it.is_array || holds_rows(param.form))?;
            let dim = if param.form == ValueForm::Frame { 0 } else { self.sizes.batch_dim };
            extent.dim(dim)
        });
        rows.next().map(|rows| u32::try_from(rows).unwrap_or(u32::MAX))
    }

    /// The sizes of the values for each parameter, as far as they count; see `http/arguments.py` for
    /// which value is whose.
    fn extents(&self, parameters: &[Parameter]) -> Vec<Option<Extent>> {
        let mut found = FoundValues {
            extents: vec![None; self.sizes.params.len()],
            given: vec![false; self.sizes.params.len()],
        };
        for parameter in parameters {
            if let Some(place) = self.index_of(parameter.name.as_bytes()) {
                found.given[place] = true;
                found.extents[place] = self.plain_value(place, parameter);
            } else if parameter.name == CALL_PARAMETER {
                self.call(&parameter.value, &mut found);
            }
        }
        let body = parameters.iter().find(|parameter| parameter.name == BODY);
        if let Some(body) = body.filter(|_| self.index_of(BODY.as_bytes()).is_none()) {
            self.body(body, &mut found);
        }
        found.extents
    }

    fn index_of(&self, name: &[u8]) -> Option<usize> {
        self.sizes.params.iter().position(|param| param.name.as_bytes() == name)
    }

    fn plain_value(&self, place: usize, parameter: &Parameter) -> Option<Extent> {
        let form = self.sizes.params[place].form;
        if self.plain[place] { value(parameter, form) } else { None }
    }

    /// The arguments of a call through a handle.
    fn call(&self, call: &[u8], found: &mut FoundValues) {
        let form = |name: ArgumentName<'_>| {
            let place = match name {
                ArgumentName::Position(place) => Some(place),
                ArgumentName::Name(name) => self.index_of(name),
            };
            let place = place.filter(|place| self.arrays.get(*place) == Some(&true))?;
            Some((place, self.sizes.params[place].form))
        };
        values::arguments(call, form, |place, extent| found.extents[place] = Some(extent));
    }

    /// The body: an object or a file of arrays by name, or the value of the one parameter there is.
    fn body(&self, body: &Parameter, found: &mut FoundValues) {
        let params = || self.sizes.params.iter().enumerate();
        let missing = || params().filter(|(place, _)| !found.given[*place]);
        let sole = sole(missing());
        if body.value.starts_with(array_file::NPZ) && self.arrays.contains(&true) {
            if !matches!(sole, Some((_, param)) if param.form == ValueForm::Bytes) {
                let given = found.given.clone();
                array_file::npz(scannable(&body.value), |name, extent| {
                    if let Some(place) = self.index_of(name).filter(|place| !given[*place]) {
                        found.extents[place] = Some(extent);
                    }
                });
            }
            return;
        }
        if !self.plain.contains(&true) {
            return;
        }
        let is_json = body.content_type == JSON_TYPE;
        if is_json && JsonReader::new(scannable(&body.value)).peek() == Some(b'{') {
            let mut reader = JsonReader::new(&body.value);
            let alone = missing().count() == 1 && !self.sizes.takes_any;
            let mut named = vec![None; self.sizes.params.len()];
            let (mut known, mut unknown) = (false, false);
            let read = reader.object(|reader, key| {
                let place = self.index_of(key);
                known |= place.is_some();
                unknown |= place.is_none();
                match place.filter(|place| self.plain[*place]) {
                    Some(place) => {
                        named[place] = Some(reader.extent(self.sizes.params[place].form)?);
                        Some(())
                    }
                    None => reader.skip(),
                }
            });
            if read.is_none() {
                return;
            }
            if !alone || known && !unknown {
                for (place, extent) in named.into_iter().enumerate() {
                    if !found.given[place] {
                        found.extents[place] = extent;
                    }
                }
                return;
            }
        }
        if let Some((place, _)) = sole {
            found.extents[place] = self.plain_value(place, body);
        }
    }
}

/// What was found so far, by parameter.
struct FoundValues {
    extents: Vec<Option<Extent>>,
    /// Parameters that came under their own name.
    given: Vec<bool>,
}

/// How many items an Open Inference request brings: the first dimension of its first input.
pub(crate) fn open_inference(input: &Input) -> Option<u32> {
    if let Some(tensors) = &input.tensors {
        return tensors.rows().map(|rows| u32::try_from(rows).unwrap_or(u32::MAX));
    }
    let body = input.parameters.iter().find(|parameter| parameter.name == BODY)?;
    json::open_inference(scannable(&body.value)).map(|rows| u32::try_from(rows).unwrap_or(u32::MAX))
}

/// Whether arrays may be in a value whose parameter has no hint.
fn holds_arrays(parameter: &Parameter) -> bool {
    parameter.name == CALL_PARAMETER || parameter.value.starts_with(array_file::NPZ)
}

/// Whether values of this form are always arrays.
fn holds_rows(form: ValueForm) -> bool {
    matches!(form, ValueForm::Array | ValueForm::Frame)
}

/// The parameter that a body is for which names none: the one that is required, or the only one.
fn sole<'a>(
    missing: impl Iterator<Item = (usize, &'a SizedParam)> + Clone,
) -> Option<(usize, &'a SizedParam)> {
    let mut required = missing.clone().filter(|(_, param)| param.required);
    match (required.next(), required.next()) {
        (Some(one), None) => return Some(one),
        (Some(_), Some(_)) => return None,
        (None, _) => {}
    }
    let mut missing = missing;
    missing.next().filter(|_| missing.next().is_none())
}

/// The value in one piece, or nothing of it if it is too long to be looked through.
fn scannable(value: &ValueBytes) -> &[u8] {
    if value.len() > SCAN_BYTES_MAX { &[] } else { value }
}

/// The size of a value as it came for a parameter of this form; none where it has none.
fn value(parameter: &Parameter, form: ValueForm) -> Option<Extent> {
    let Parameter { content_type, value, .. } = parameter;
    let json = || JsonReader::new(scannable(value)).extent(form);
    let text = || {
        let pieces = value.pieces().iter();
        Some(Extent::of_length(pieces.map(|piece| characters(piece)).sum()))
    };
    let is_json = content_type == JSON_TYPE;
    match form {
        ValueForm::Array | ValueForm::Frame if value.starts_with(array_file::NPY) => {
            // The head is usually in the first piece, and the rest is not needed.
            let read = |bytes: &[u8]| array_file::npy(bytes, value.len());
            value.pieces().first().and_then(|piece| read(piece)).or_else(|| read(value))
        }
        ValueForm::Array | ValueForm::Frame => match JsonReader::new(scannable(value)).peek() {
            Some(b'[' | b'{') => json(),
            Some(_) if form == ValueForm::Frame && !value.starts_with(b"PAR1") => {
                Some(array_file::csv(value))
            }
            Some(_) | None => None,
        },
        ValueForm::Json => json(),
        ValueForm::Text | ValueForm::Bytes | ValueForm::Any if is_json => json(),
        ValueForm::Text => text(),
        ValueForm::Any if content_type.starts_with("text") => text(),
        ValueForm::Bytes | ValueForm::Any => Some(Extent::of_length(value.len() as u64)),
    }
}

/// The number of an expression. A size that a value does not have counts as 1.
fn evaluate(expression: &SizeExpression, extents: &[Option<Extent>]) -> u64 {
    expression.0.iter().fold(1, |number: u64, factor| match factor {
        SizeFactor::Times(times) => number.saturating_mul(*times),
        SizeFactor::Over(over) => number / *over,
        SizeFactor::Dim { param, dim } => {
            let extent = extents.get(*param).copied().flatten();
            number.saturating_mul(extent.and_then(|extent| extent.dim(*dim)).unwrap_or(1))
        }
    })
}

#[cfg(test)]
mod tests;
