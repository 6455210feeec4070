//! When two requests are equal, for a model that has a cache: what the answer depends on is hashed with BLAKE3, so that
//! no client can make two requests meet.

use blake3::Hasher;
use jitney_engine::answer_cache::{AnswerKey, CacheRule};
use jitney_engine::call::{Input, Operation};
use jitney_engine::tensors::TensorRequest;

use super::InferenceRequest;
use crate::request_options::{RAW_METHOD, TENSOR_REQUEST};

/// Headers that choose what runs, under any rule: the models that a worker loads by id.
const CHOOSING: [&[u8]; 2] = [b"serve_multiplexed_model_id", b"serve-multiplexed-model-id"];

/// Bytes that are hashed at once: all of a small request.
const WAITING_BYTES: usize = 512;

/// How a request uses the cache.
pub(super) struct CacheUse {
    pub(super) key: AnswerKey,
    /// Whether its client wants an answer that is made now (`Cache-Control: no-cache`).
    pub(super) fresh: bool,
}

impl CacheUse {
    /// None where a request may neither get nor leave an answer: of sequences, with `Cache-Control: no-store`, unparsed,
    /// and from a part of an application, of which the server does not know whom it asks for.
    pub(super) fn of(request: &InferenceRequest<'_>, rule: &CacheRule) -> Option<Self> {
        let Input { route, headers, parameters, tensors, .. } = &*request.input;
        let nobody_known = request.admitted && !rule.shared;
        if route.sequence.is_some() || route.operation == Operation::Describe || nobody_known {
            return None;
        }
        let mut key = KeyHasher { waiting: Vec::with_capacity(WAITING_BYTES), hasher: None };
        key.flags([
            rule.shared,
            route.operation == Operation::Explain,
            route.tells_explain,
            route.open_inference,
            route.endpoint.is_some(),
            tensors.is_some(),
        ]);
        key.put(route.endpoint.as_deref().unwrap_or_default().as_bytes());
        if !rule.shared {
            let tenant = request.options.claim.tenant.as_deref();
            key.flags([request.client.is_some(), tenant.is_some()]);
            key.put(request.client.unwrap_or_default().as_bytes());
            key.put(tenant.unwrap_or_default().as_bytes());
        }
        // A run that began under another rule must not answer under this one.
        key.count(rule.headers.len());
        rule.headers.iter().for_each(|name| key.put(name.as_bytes()));
        let mut fresh = false;
        for (name, value) in headers.iter() {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            if is(RAW_METHOD) {
                return None;
            } else if is("cache-control") {
                if says(value, b"no-store") {
                    return None;
                }
                fresh |= says(value, b"no-cache");
            } else if is(TENSOR_REQUEST) {
                key.flags([true, false]);
                key.put(parameters_of(value).as_bytes());
            } else if rule.headers.iter().any(|known| is(known))
                || CHOOSING.iter().any(|known| name.eq_ignore_ascii_case(known))
            {
                key.flags([true, true]);
                key.put(&name.to_ascii_lowercase());
                key.put(value);
            }
        }
        key.flags([false]);
        key.count(parameters.len());
        for parameter in parameters {
            key.put(parameter.name.as_bytes());
            key.put(parameter.content_type.as_bytes());
            key.pieces(parameter.value.len(), parameter.value.pieces());
        }
        tensors.iter().for_each(|tensors| key.tensors(tensors));
        Some(Self { key: key.end(), fresh })
    }
}

/// Every value is hashed with its length, so that none can be moved into its neighbour.
struct KeyHasher {
    /// Values that are not hashed yet: many small ones are hashed at once, which costs half.
    waiting: Vec<u8>,
    /// None as long as all fit there.
    hasher: Option<Hasher>,
}

impl KeyHasher {
    fn flags<const N: usize>(&mut self, flags: [bool; N]) {
        self.bytes(&flags.map(u8::from));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if self.waiting.len() + bytes.len() <= WAITING_BYTES {
            self.waiting.extend_from_slice(bytes);
            return;
        }
        let hasher = self.hasher.get_or_insert_default();
        hasher.update(&self.waiting).update(bytes);
        self.waiting.clear();
    }

    fn end(self) -> AnswerKey {
        let hash = match self.hasher {
            None => blake3::hash(&self.waiting),
            Some(mut hasher) => hasher.update(&self.waiting).finalize(),
        };
        AnswerKey(hash.into())
    }

    fn put(&mut self, value: &[u8]) {
        self.pieces(value.len(), &[value]);
    }

    /// In one byte where it is small, as most are: the key of a small request has a block less to hash. Every byte but
    /// the last has its highest bit, so that no number begins with another.
    fn count(&mut self, mut count: usize) {
        while count >= 0x80 {
            self.bytes(&[count as u8 | 0x80]);
            count >>= 7;
        }
        self.bytes(&[count as u8]);
    }

    fn pieces(&mut self, length: usize, pieces: &[impl AsRef<[u8]>]) {
        self.count(length);
        for piece in pieces {
            self.bytes(piece.as_ref());
        }
    }

    fn tensors(&mut self, TensorRequest { inputs, outputs }: &TensorRequest) {
        self.count(inputs.len());
        for tensor in inputs {
            self.put(tensor.name().as_bytes());
            self.put(tensor.datatype().as_str().as_bytes());
            self.count(tensor.shape().len());
            tensor.shape().iter().for_each(|size| self.count(*size));
            self.put(tensor.data());
        }
        self.count(outputs.len());
        outputs.iter().for_each(|name| self.put(name.as_bytes()));
    }
}

/// Whether a list of directives has this one.
fn says(value: &[u8], directive: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|it| it.trim_ascii().eq_ignore_ascii_case(directive))
}

/// The parameters of a request in tensors, without its id.
fn parameters_of(told: &[u8]) -> String {
    let told = serde_json::from_slice::<serde_json::Value>(told).unwrap_or_default();
    told.get("parameters").map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests;
