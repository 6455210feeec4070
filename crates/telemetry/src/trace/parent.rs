//! What a client says about the trace that its request belongs to: `traceparent` and `tracestate`, as the
//! W3C's recommendation "Trace Context" has them. What is not valid counts as absent.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::ids::{self, SpanId, SpanRef, TraceId};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Bytes of a `traceparent` of version 00; later versions begin alike.
const LENGTH: usize = 55;
const SAMPLED: u128 = 1;
/// Members of a `tracestate`.
const MEMBERS_MAX: usize = 32;
const KEY_MAX: usize = 256;
const VALUE_MAX: usize = 256;

/// The span of the client's that waits for this request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceParent {
    pub(super) at: SpanRef,
    /// Whether the client records this trace.
    pub(super) sampled: bool,
    /// What other systems know about the trace, to be passed on as it is.
    pub(super) state: Option<Box<str>>,
}

impl TraceParent {
    /// What the headers say; nothing if they say nothing valid.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(&TRACEPARENT).iter();
        let (first, second) = (values.next()?, values.next());
        let (at, sampled) = read(first.as_bytes()).filter(|_| second.is_none())?;
        Some(Self { at, sampled, state: state(headers) })
    }
}

/// Reads a `traceparent`: the span, and whether the trace is recorded.
pub(super) fn read(text: &[u8]) -> Option<(SpanRef, bool)> {
    let (known, rest) = text.split_at_checked(LENGTH)?;
    let [b'-', b'-', b'-'] = [known[2], known[35], known[52]] else { return None };
    let fits = match ids::read_hex(&known[..2])? {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || rest[0] == b'-',
    };
    let trace = ids::read_hex(&known[3..35]).filter(|trace| fits && *trace != 0)?;
    let span = ids::read_hex(&known[36..52]).and_then(|span| u64::try_from(span).ok());
    let span = SpanId(span.filter(|span| *span != 0)?);
    let sampled = ids::read_hex(&known[53..55])? & SAMPLED == SAMPLED;
    Some((SpanRef { trace: TraceId(trace), span }, sampled))
}

/// A `traceparent` for a recorded span.
pub(super) fn header(at: SpanRef) -> String {
    format!("00-{}-{}-01", at.trace, at.span)
}

/// All `tracestate` headers as one; nothing if any of their members is broken.
fn state(headers: &HeaderMap) -> Option<Box<str>> {
    let mut members = Vec::new();
    for value in headers.get_all(&TRACESTATE) {
        let text = HeaderValue::to_str(value).ok()?;
        members.extend(text.split(',').map(trim).filter(|member| !member.is_empty()));
    }
    let valid = members.len() <= MEMBERS_MAX && members.iter().all(|member| is_member(member));
    (valid && !members.is_empty()).then(|| members.join(",").into())
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

fn is_member(text: &str) -> bool {
    let Some((key, value)) = text.split_once('=') else { return false };
    let key_byte =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    let begins = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let tenants = key.bytes().filter(|byte| *byte == b'@').count();
    (1..=KEY_MAX).contains(&key.len())
        && key.as_bytes().first().is_some_and(begins)
        && key.bytes().all(key_byte)
        && tenants <= 1
        && (1..=VALUE_MAX).contains(&value.len())
        && value.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn parent(pairs: &[(&'static str, &str)]) -> Option<TraceParent> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        TraceParent::of(&headers)
    }

    #[test]
    fn a_traceparent_names_the_clients_span() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        let (at, sampled) = read(text.as_bytes()).unwrap();
        assert_eq!(
            (at.trace.to_string(), at.span.to_string(), sampled),
            (TRACE.into(), SPAN.into(), true)
        );
        assert_eq!(header(at), text);
        let flags =
            |flags: &str| read(format!("00-{TRACE}-{SPAN}-{flags}").as_bytes()).map(|it| it.1);
        assert_eq!(
            ["00", "02", "03", "ff"].map(flags),
            [Some(false), Some(false), Some(true), Some(true)]
        );
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        for (text, valid) in [
            (format!("cc-{TRACE}-{SPAN}-01"), true),
            (format!("cc-{TRACE}-{SPAN}-01-what-comes"), true),
            (format!("cc-{TRACE}-{SPAN}-01.what"), false),
            (format!("ff-{TRACE}-{SPAN}-01"), false),
            (format!("00-{TRACE}-{SPAN}-01-more"), false),
        ] {
            assert_eq!(read(text.as_bytes()).is_some(), valid, "{text}");
        }
    }

    #[test]
    fn what_is_not_valid_is_no_parent() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("0-{TRACE}-{SPAN}-01"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("00-{TRACE}-{SPAN}-0x"),
            format!(".0-{TRACE}-{SPAN}-01"),
            format!(" 00-{TRACE}-{SPAN}-01"),
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text:?}");
        }
        let text = format!("00-{TRACE}-{SPAN}-01");
        assert_eq!(parent(&[("traceparent", &text), ("traceparent", &text)]), None);
    }

    #[test]
    fn a_tracestate_is_kept_whole_or_not_at_all() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        let state = |states: &[&str]| {
            let mut pairs = vec![("traceparent", text.as_str())];
            pairs.extend(states.iter().map(|state| ("tracestate", *state)));
            parent(&pairs).unwrap().state
        };
        assert_eq!(state(&["a=1, b=2", "t@c/d=3 4,"]).as_deref(), Some("a=1,b=2,t@c/d=3 4"));
        let many: Vec<_> = (0..33).map(|place| format!("k{place}=1")).collect();
        for broken in ["", ",", "A=1", "a", "a=", "=1", "a=b=c", "a@b@c=1", "a =1", &many.join(",")]
        {
            assert_eq!(state(&[broken]), None, "{broken:?}");
        }
        assert_eq!(parent(&[("tracestate", "a=1")]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(trace in 1_u128.., span in 1_u64..) {
            let at = SpanRef { trace: TraceId(trace), span: SpanId(span) };
            prop_assert_eq!(read(header(at).as_bytes()), Some((at, true)));
        }

        #[test]
        fn anything_may_come(text in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some((at, _)) = read(&text) {
                prop_assert!(at.trace.0 != 0 && at.span.0 != 0 && text.len() >= LENGTH);
            }
        }

        #[test]
        fn one_wrong_byte_of_version_00_is_never_another_valid_length(
            place in 0_usize..55, byte in any::<u8>(),
        ) {
            let mut text = format!("00-{TRACE}-{SPAN}-01").into_bytes();
            text[place] = byte;
            let hexadecimal = byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            let dash = [2, 35, 52].contains(&place);
            let ends_version = place < 2 && text[..2] == *b"ff";
            prop_assert_eq!(read(&text).is_some(), if dash { byte == b'-' } else { hexadecimal && !ends_version });
        }
    }
}
