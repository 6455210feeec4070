//! Why a server gave no answer, in the words of who asked. The library of TLS names what it found in the words of
//! a programmer; each of them has a sentence and a hint here.

use super::server_api::ServerApi;
use crate::failure::Failure;
use crate::tls::MAKE_CERTIFICATE;

/// The failure for the last cause of an error, in lower case.
pub(super) fn no_answer(
    (api, address): (ServerApi, &str),
    cause: &str,
    connecting: bool,
) -> Failure {
    let says = |words: &[&str]| words.iter().any(|word| cause.contains(word));
    if says(&["alert: certificate", "alert: badcertificate", "alert: unknownca"]) {
        let refused = match says(&["certificaterequired"]) {
            true => "wants a certificate of the client",
            false => "does not take this client's certificate",
        };
        return Failure::no_permission(format!("{address} {refused}")).hint(
            "--client-cert FILE shows one, with its key; the server's client_ca has to know it",
        );
    }
    let shows = |what: &str| format!("{address} shows a certificate that {what}");
    let make = format!(
        "`{MAKE_CERTIFICATE}` makes one for this machine, which SSL_CERT_FILE=cert.pem makes this program trust"
    );
    let (what, hint) = match () {
        () if says(&["invalidcontenttype", "corrupt message"]) => (
            format!("{address} does not speak HTTPS"),
            "write http:// in the address, or give the server a certificate and a key".to_owned(),
        ),
        () if says(&["causedasendentity"]) => {
            (shows("is made for an authority and not for a server (CA:TRUE)"), make)
        }
        () if says(&["notvalidforname", "not valid for name"]) => {
            let names = valid_names(cause);
            let hint = format!("write a name of the certificate in the address; {make}");
            (shows(&format!("is for {names} and not for the name in this address")), hint)
        }
        () if says(&["expired"]) => (shows("has expired"), make),
        () if says(&["notvalidyet", "not valid yet"]) => {
            (shows("is not valid yet"), "compare the clocks of both machines".to_owned())
        }
        () if says(&["certificate", "unknownissuer"]) => (
            shows("this program does not trust"),
            "SSL_CERT_FILE=cert.pem makes this program trust the server's own certificate"
                .to_owned(),
        ),
        () if !connecting => {
            return Failure::unreachable(format!("{address} ended the connection: {cause}"));
        }
        () => (
            format!("cannot reach {address}: {cause}"),
            format!(
                "is the server running? --url or {} names its {} address ({}); `jitney doctor` looks for servers",
                api.variable(),
                api.word(),
                api.port_hint()
            ),
        ),
    };
    Failure::unreachable(what).hint(hint)
}

/// Of `certificate is only valid for dnsname("localhost") or ipaddress(127.0.0.1)`, the names.
fn valid_names(cause: &str) -> String {
    let names = cause.split("only valid for ").nth(1).unwrap_or("another name");
    ["dnsname(", "ipaddress(", ")", "\""].iter().fold(names.to_owned(), |it, no| it.replace(no, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tls_found_is_said_in_words() {
        for (cause, expected) in [
            ("received corrupt message of type invalidcontenttype", "a:1 does not speak HTTPS"),
            ("received fatal alert: certificaterequired", "a:1 wants a certificate of the client"),
            ("received fatal alert: unknownca", "a:1 does not take this client's certificate"),
            (
                "invalid peer certificate: other(othererror(causedasendentity))",
                "a:1 shows a certificate that is made for an authority and not for a server (CA:TRUE)",
            ),
            (
                "invalid peer certificate: certificate not valid for name \"a\"; certificate is only valid for \
                 dnsname(\"localhost\") or ipaddress(127.0.0.1)",
                "a:1 shows a certificate that is for localhost or 127.0.0.1 and not for the name in this address",
            ),
            (
                "invalid peer certificate: certificate expired: verification time 7 (UNIX)",
                "a:1 shows a certificate that has expired",
            ),
            (
                "invalid peer certificate: badsignature",
                "a:1 shows a certificate that this program does not trust",
            ),
            ("connection refused", "cannot reach a:1: connection refused"),
        ] {
            assert_eq!(no_answer((ServerApi::Management, "a:1"), cause, true).message, expected);
        }
        let ended = no_answer((ServerApi::Management, "a:1"), "connection reset", false);
        assert_eq!(
            (ended.message.as_str(), ended.hint),
            ("a:1 ended the connection: connection reset", None)
        );
    }
}
