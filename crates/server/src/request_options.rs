//! What a request may say about itself: its deadline, its priority, its tenant, its cost and its items.
//!
//! Headers over HTTP, metadata of the same names over gRPC, fields of a call's frame through a handle.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use jitney_engine::call::{Claim, HeaderBlock, Priority, SequenceHeaders, SequenceRef};
use tokio::time::Instant;

use crate::errors::Problem;

/// How long the client finds an answer useful, in milliseconds from the arrival of the request's head.
const TIMEOUT: HeaderName = HeaderName::from_static("x-jitney-timeout-ms");
/// `interactive` (the default) or `bulk`.
const PRIORITY: HeaderName = HeaderName::from_static("x-jitney-priority");
/// Who sends it.
const TENANT: HeaderName = HeaderName::from_static(TENANT_NAME);
pub(crate) const TENANT_NAME: &str = "x-jitney-tenant";
/// Its cost, in the unit of the model's cost.
const COST: HeaderName = HeaderName::from_static("x-jitney-cost");
/// How many items it brings, for models whose requests the server does not read.
const ITEMS: HeaderName = HeaderName::from_static("x-jitney-items");
/// What a request says beside its tensors, for models of Triton's Python backend. No client can send this name.
pub(crate) const TENSOR_REQUEST: &str = "jitney request";
/// The method of a request that reaches its model unparsed. No client can send this name.
pub(crate) const RAW_METHOD: &str = "jitney method";
/// What all names of options begin with.
const PREFIX: &str = "x-jitney-";

/// The longest name of a tenant.
const TENANT_BYTES_MAX: usize = 128;

/// The options of one request; most requests have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestOptions {
    /// When the answer stops being useful.
    pub(crate) deadline: Option<Instant>,
    pub(crate) priority: Priority,
    pub(crate) claim: Claim,
}

impl RequestOptions {
    /// Those of a request that says nothing.
    const NONE: Self = Self {
        deadline: None,
        priority: Priority::Interactive,
        claim: Claim { tenant: None, cost: None, items: None },
    };

    /// Reads the options of a request that `started` when its head had arrived.
    ///
    /// # Errors
    /// A header has no valid value.
    pub(crate) fn read(headers: &HeaderMap, started: Instant) -> Result<Self, Problem> {
        if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
            return Ok(Self::NONE);
        }
        let (deadline, priority) = (deadline(headers, started)?, priority(headers)?);
        let (tenant, cost) = (tenant(headers)?, whole(headers, &COST)?);
        let claim = Claim { tenant, cost, items: whole(headers, &ITEMS)? };
        Ok(Self { deadline, priority, claim })
    }
}

/// Whether it can name a tenant.
pub(crate) fn is_tenant(name: &str) -> bool {
    let printable = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    (1..=TENANT_BYTES_MAX).contains(&name.len()) && name.bytes().all(printable)
}

/// Adds the tenant as a header, where a model reads it.
pub(crate) fn push_tenant(claim: &Claim, headers: &mut HeaderBlock) {
    if let Some(tenant) = &claim.tenant {
        headers.push(TENANT_NAME, tenant.as_bytes());
    }
}

/// Adds tenant and cost as headers, where a model reads them whatever the protocol.
pub(crate) fn push_claim(claim: &Claim, headers: &mut HeaderBlock) {
    push_tenant(claim, headers);
    if let Some(cost) = claim.cost {
        headers.push(COST.as_str(), cost.to_string().as_bytes());
    }
}

/// The sequence that a request names in a header, for models with sequences.
pub(crate) fn sequence(headers: &HeaderMap, names: &SequenceHeaders) -> Option<Box<SequenceRef>> {
    let id = headers.get_all(&names.id).iter().next_back()?;
    let id = String::from_utf8_lossy(id.as_bytes()).into_owned();
    let starts = headers.get_all(&names.start).iter().next_back();
    let starts = starts.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
    (!id.is_empty()).then(|| Box::new(SequenceRef { id, starts, ends: false }))
}

fn deadline(headers: &HeaderMap, started: Instant) -> Result<Option<Instant>, Problem> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let millis: Option<u64> = value.to_str().ok().and_then(|text| text.parse().ok());
    let millis = millis.ok_or_else(|| {
        Problem::bad_request("Header x-jitney-timeout-ms must be a whole number of milliseconds.")
    })?;
    Ok(started.checked_add(Duration::from_millis(millis)))
}

fn priority(headers: &HeaderMap) -> Result<Priority, Problem> {
    match headers.get(PRIORITY).map(HeaderValue::as_bytes) {
        None | Some(b"interactive") => Ok(Priority::Interactive),
        Some(b"bulk") => Ok(Priority::Bulk),
        Some(_) => {
            Err(Problem::bad_request("Header x-jitney-priority must be interactive or bulk."))
        }
    }
}

fn tenant(headers: &HeaderMap) -> Result<Option<Arc<str>>, Problem> {
    let Some(value) = headers.get(TENANT) else { return Ok(None) };
    let name = value.to_str().ok().filter(|name| is_tenant(name));
    name.map(|name| Some(name.into())).ok_or_else(|| {
        Problem::bad_request(format!(
            "Header x-jitney-tenant must be 1 to {TENANT_BYTES_MAX} ASCII characters."
        ))
    })
}

/// A whole number above zero.
fn whole<T: FromStr + Default + PartialOrd>(
    headers: &HeaderMap,
    name: &HeaderName,
) -> Result<Option<T>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.filter(|number| *number > T::default()).map(Some).ok_or_else(|| {
        Problem::bad_request(format!("Header {name} must be a whole number above zero."))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: HeaderName, value: &str) -> Option<RequestOptions> {
        let headers = HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())]);
        RequestOptions::read(&headers, Instant::now()).ok()
    }

    #[test]
    fn options_are_read_or_rejected() {
        let now = Instant::now();
        let none = RequestOptions::read(&HeaderMap::new(), now).unwrap();
        assert_eq!(none, RequestOptions::NONE);
        let headers = HeaderMap::from_iter([(TIMEOUT, HeaderValue::from_static("250"))]);
        let read_at = RequestOptions::read(&headers, now).unwrap();
        assert_eq!(read_at.deadline, Some(now + Duration::from_millis(250)));
        assert_eq!(read(PRIORITY, "bulk").unwrap().priority, Priority::Bulk);
        assert_eq!(read(TENANT, "gold").unwrap().claim.tenant.as_deref(), Some("gold"));
        assert_eq!(read(COST, "17").unwrap().claim.cost, Some(17));
        assert_eq!(read(ITEMS, "5").unwrap().claim.items, Some(5));
        let long = "x".repeat(TENANT_BYTES_MAX + 1);
        for (name, bad) in [
            (TIMEOUT, &["soon", "-1"][..]),
            (PRIORITY, &["urgent"]),
            (COST, &["", "0", "-1", "1.5", "much"]),
            (ITEMS, &["", "0", "-1", "1.5", "many", "4294967296"]),
            (TENANT, &["", "gr\u{fc}n", &long]),
        ] {
            for value in bad {
                assert_eq!(read(name.clone(), value), None, "{name}: {value}");
            }
        }
    }

    #[test]
    fn the_last_header_names_the_sequence() {
        let names = SequenceHeaders { id: "X-Session".to_owned(), ..SequenceHeaders::default() };
        let mut sent = HeaderMap::new();
        assert_eq!(sequence(&sent, &names), None);
        sent.append("x-session", "a".parse().unwrap());
        sent.append("x-session", "b".parse().unwrap());
        assert_eq!(sequence(&sent, &names).unwrap().id, "b");
        sent.append("x-session", "".parse().unwrap());
        assert_eq!(sequence(&sent, &names), None);
    }
}
