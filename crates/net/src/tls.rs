//! TLS: a certificate with its key, for the listeners that need one.
//!
//! rustls with ring and nothing else: the provider is named here, so that a second one in the
//! dependency graph could not change the protocol. Takes texts, not files; the cli reads those.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// Shorter RSA keys have no signatures that clients accept, and none that ring makes.
const RSA_BITS_MIN: usize = 2048;

/// What a listener needs to speak HTTPS, or gRPC over TLS.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

/// Why a certificate and a key are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate's text is not PEM, or has no certificate in it.
    #[error("cannot read the certificate: {0}")]
    Certificate(String),
    /// The key's text is not PEM, or has no key in it that is known: PKCS8, PKCS1 or SEC1.
    #[error("cannot read the private key: {0}")]
    Key(String),
    /// Each is fine alone; together, or for TLS, they are not.
    #[error("certificate and key cannot be used: {0}")]
    Unfit(String),
}

impl Tls {
    /// A chain of certificates, the server's own first, and its key, all in PEM.
    ///
    /// # Errors
    /// The texts are not what they should be, or do not belong together.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(|error| TlsError::Certificate(describe(&error)))?;
        if chain.is_empty() {
            return Err(TlsError::Certificate(describe(&pem::Error::NoItemsFound)));
        }
        let key = PrivateKeyDer::from_pem_slice(key);
        Self::from_der(chain, key.map_err(|error| TlsError::Key(describe(&error)))?)
    }

    /// A self-signed certificate for these names: encrypted, but vouched for by no authority.
    ///
    /// # Errors
    /// A name is not valid.
    pub fn self_signed(names: Vec<String>) -> Result<Self, TlsError> {
        let made = rcgen::generate_simple_self_signed(names);
        let made = made.map_err(|error| TlsError::Certificate(error.to_string()))?;
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        Self::from_der(vec![made.cert.der().clone()], key)
    }

    fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsError> {
        if let Some(bits) = rsa_bits(&key).filter(|bits| *bits < RSA_BITS_MIN) {
            let why =
                format!("the RSA key has {bits} bits, and at least {RSA_BITS_MIN} are needed");
            return Err(TlsError::Unfit(why));
        }
        let unfit = |error: rustls::Error| TlsError::Unfit(error.to_string());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unfit)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unfit)?;
        Ok(Self(Arc::new(config)).speaking(&[b"http/1.1"]))
    }

    /// The same certificate for other protocols (ALPN).
    #[must_use]
    pub fn speaking(self, protocols: &[&[u8]]) -> Self {
        let mut config = Arc::unwrap_or_clone(self.0);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Self(Arc::new(config))
    }

    /// Does the handshakes.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

/// The length of an RSA key; none for another kind of key.
fn rsa_bits(key: &PrivateKeyDer<'_>) -> Option<usize> {
    const INTEGER: u8 = 0x02;
    const OCTETS: u8 = 0x04;
    const SEQUENCE: u8 = 0x30;
    let pkcs1 = if let PrivateKeyDer::Pkcs1(key) = key {
        key.secret_pkcs1_der()
    } else if let PrivateKeyDer::Pkcs8(key) = key {
        let (inside, _) = der_value(key.secret_pkcs8_der(), SEQUENCE)?;
        let (_version, rest) = der_value(inside, INTEGER)?;
        let (_algorithm, rest) = der_value(rest, SEQUENCE)?;
        der_value(rest, OCTETS)?.0
    } else {
        return None;
    };
    let (inside, _) = der_value(pkcs1, SEQUENCE)?;
    let (_version, rest) = der_value(inside, INTEGER)?;
    let (modulus, _) = der_value(rest, INTEGER)?;
    let significant = modulus.iter().skip_while(|byte| **byte == 0);
    let first = significant.clone().next()?;
    Some(significant.count() * 8 - first.leading_zeros() as usize)
}

/// The first value of a DER text, if it has this tag, and what follows it.
fn der_value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..0x80 => (usize::from(*length), rest),
        _ => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            let sum = |sum: usize, byte: &u8| sum.checked_mul(256)?.checked_add(usize::from(*byte));
            (bytes.iter().try_fold(0, sum)?, rest)
        }
    };
    rest.split_at_checked(length).filter(|_| *found == tag)
}

/// Does not print the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

fn describe(error: &pem::Error) -> String {
    if matches!(error, pem::Error::NoItemsFound) {
        "the text is not in PEM form, or contains none".to_owned()
    } else {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn rejected(certificate: &str, key: &str) -> String {
        Tls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_certificate_and_its_own_key_are_taken() {
        let (certificate, key) = pair();
        assert!(Tls::from_pem(certificate.as_bytes(), key.as_bytes()).is_ok());
        // Keys and certificates often share a file; what else is in there does not matter.
        let both = format!("{key}{certificate}");
        assert!(Tls::from_pem(both.as_bytes(), both.as_bytes()).is_ok());
    }

    #[test]
    fn a_rejected_pair_has_a_reason() {
        let ((certificate, key), (_, other)) = (pair(), pair());
        assert!(
            rejected("", &key).starts_with("cannot read the certificate: the text is not in PEM")
        );
        assert!(rejected(&key, &key).starts_with("cannot read the certificate"));
        assert!(rejected(&certificate, &certificate).starts_with("cannot read the private key"));
        assert!(rejected(&certificate, &other).starts_with("certificate and key cannot be used"));
    }

    #[test]
    fn a_short_rsa_key_is_refused_with_its_length() {
        let integer = |bytes: &[u8]| [&[0x02, 0x81, bytes.len() as u8], bytes].concat();
        let modulus = [&[0, 0x80][..], &[1; 127]].concat();
        let numbers = [integer(&[0]), integer(&modulus)].concat();
        let pkcs1 = [&[0x30, 0x81, numbers.len() as u8], &*numbers].concat();
        let key = PrivateKeyDer::Pkcs1(pkcs1.clone().into());
        assert_eq!(rsa_bits(&key), Some(1024));
        let octets = [&[0x04, 0x81, pkcs1.len() as u8], &*pkcs1].concat();
        let inside = [&[0x02, 1, 0, 0x30, 0][..], &octets].concat();
        let pkcs8 = [&[0x30, 0x81, inside.len() as u8], &*inside].concat();
        let key = PrivateKeyDer::Pkcs8(pkcs8.into());
        let error = Tls::from_der(Vec::new(), key).unwrap_err().to_string();
        assert!(
            error.ends_with("the RSA key has 1024 bits, and at least 2048 are needed"),
            "{error}"
        );
        let elliptic = pair().1;
        let elliptic = PrivateKeyDer::from_pem_slice(elliptic.as_bytes()).unwrap();
        assert_eq!(rsa_bits(&elliptic), None);
    }

    #[test]
    fn the_key_cannot_be_seen_by_looking_at_it() {
        let (certificate, key) = pair();
        let tls = Tls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(format!("{tls:?}"), "Tls { .. }");
    }
}
