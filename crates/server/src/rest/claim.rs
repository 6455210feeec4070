//! What a request says about its share: who sends it and what it weighs. Headers over HTTP, metadata
//! of the same names over gRPC, fields of a call's head through a handle. What a name or a weight is
//! worth is the model's business.

use http::HeaderMap;
use http::header::HeaderName;
use jitney_engine::call::Claim;

use crate::errors::Problem;

/// Who sends it.
pub(crate) const TENANT: HeaderName = HeaderName::from_static("x-jitney-tenant");
/// What it weighs, in the unit of the model's cost.
pub(crate) const COST: HeaderName = HeaderName::from_static("x-jitney-cost");

/// The longest name of a tenant.
const NAME_MAX: usize = 128;

/// Whether it can name a tenant.
pub(crate) fn is_tenant(name: &str) -> bool {
    let printable = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(printable)
}

/// Reads the claim, which is empty for nearly all requests.
pub(crate) fn read(headers: &HeaderMap) -> Result<Claim, Problem> {
    Ok(Claim { tenant: tenant(headers)?, cost: cost(headers)? })
}

fn tenant(headers: &HeaderMap) -> Result<Option<Box<str>>, Problem> {
    let Some(value) = headers.get(TENANT) else { return Ok(None) };
    let name = value.to_str().ok().filter(|name| is_tenant(name));
    let rejection = || {
        let message = format!("Header x-jitney-tenant must be 1 to {NAME_MAX} ASCII characters.");
        Problem::bad_request(message)
    };
    name.map(|name| Some(name.into())).ok_or_else(rejection)
}

fn cost(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(COST) else { return Ok(None) };
    let cost = value.to_str().ok().and_then(|text| text.parse().ok()).filter(|cost| *cost > 0);
    cost.map(Some).ok_or_else(|| {
        Problem::bad_request("Header x-jitney-cost must be a whole number above zero.")
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_claim_is_read_or_refused() {
        let header = |name, value: &str| {
            HeaderMap::from_iter([(name, HeaderValue::from_str(value).expect("a value"))])
        };
        assert_eq!(read(&HeaderMap::new()).unwrap(), Claim::default());
        let named = read(&header(TENANT, "gold")).unwrap();
        assert_eq!(named.tenant.as_deref(), Some("gold"));
        assert_eq!(read(&header(COST, "17")).unwrap().cost, Some(17));
        for bad in ["", "0", "-1", "1.5", "much"] {
            assert!(read(&header(COST, bad)).is_err(), "{bad}");
        }
        let long = "x".repeat(NAME_MAX + 1);
        for bad in ["", "gr\u{fc}n", &long] {
            assert!(read(&header(TENANT, bad)).is_err(), "{bad}");
        }
    }
}
