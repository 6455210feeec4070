//! TLS: a certificate with its key, for the listeners that need one, and whose certificates clients must show.
//!
//! rustls with ring and nothing else: the provider is named here, so that a second one in the
//! dependency graph could not change the protocol. Takes texts, not files; the cli reads those.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jitney_settings::TlsVersion;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, InconsistentKeys, RootCertStore, ServerConfig};

use crate::certificate::rsa_bits;

/// Shorter RSA keys have no signatures that clients accept, and none that ring makes.
const RSA_BITS_MIN: usize = 2048;

/// What a listener needs to speak HTTPS, or gRPC over TLS. Its clones change together.
#[derive(Clone)]
pub struct Tls(Arc<ArcSwap<ServerConfig>>);

/// What is asked of clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientRules<'a> {
    /// The authorities, in PEM, one of which must have signed a client's certificate; without them no
    /// certificate is asked for.
    pub authorities: Option<&'a [u8]>,
    /// The oldest version of TLS that is spoken.
    pub min_version: TlsVersion,
}

/// Why a certificate and a key are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate's text is not PEM, or has no certificate in it.
    #[error("cannot read the certificate: {0}")]
    Certificate(String),
    /// The key's text is not PEM, or has no key in it that is known: PKCS8, PKCS1 or SEC1.
    #[error("cannot read the private key: {0}")]
    Key(String),
    /// The text of the clients' authorities has no certificate in it that could be one.
    #[error("cannot read the authorities of clients: {0}")]
    Authorities(String),
    /// Each is fine alone; together, or for TLS, they are not.
    #[error("certificate and key cannot be used: {0}")]
    Unfit(String),
}

impl Tls {
    /// A chain of certificates, the server's own first, and its key, all in PEM.
    ///
    /// # Errors
    /// The texts are not what they should be, or do not belong together.
    pub fn from_pem(
        certificates: &[u8],
        key: &[u8],
        clients: ClientRules<'_>,
    ) -> Result<Self, TlsError> {
        let chain = read_certificates(certificates).map_err(TlsError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key);
        Self::from_der(chain, key.map_err(|error| TlsError::Key(describe(&error)))?, clients)
    }

    /// A self-signed certificate for these names: encrypted, but vouched for by no authority.
    ///
    /// # Errors
    /// A name is not valid.
    pub fn self_signed(names: Vec<String>, clients: ClientRules<'_>) -> Result<Self, TlsError> {
        let made = rcgen::generate_simple_self_signed(names);
        let made = made.map_err(|error| TlsError::Certificate(error.to_string()))?;
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        Self::from_der(vec![made.cert.der().clone()], key, clients)
    }

    fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        clients: ClientRules<'_>,
    ) -> Result<Self, TlsError> {
        if let Some(bits) = rsa_bits(&key).filter(|bits| *bits < RSA_BITS_MIN) {
            let why =
                format!("the RSA key has {bits} bits, and at least {RSA_BITS_MIN} are needed");
            return Err(TlsError::Unfit(why));
        }
        let versions = match clients.min_version {
            TlsVersion::Tls13 => &[&TLS13][..],
            TlsVersion::Tls12 => &[&TLS13, &TLS12],
        };
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_protocol_versions(versions).map_err(unfit)?;
        let config = match clients.authorities {
            None => config.with_no_client_auth(),
            Some(authorities) => {
                let roots = Arc::new(roots(authorities).map_err(TlsError::Authorities)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let unusable = |error| TlsError::Authorities(format!("{error}"));
                config.with_client_cert_verifier(verifier.map_err(unusable)?)
            }
        };
        let mut config = config.with_single_cert(chain, key).map_err(unfit)?;
        if clients.authorities.is_some() {
            // A session that is taken up again would not be asked whether its certificate is still valid.
            config.session_storage = Arc::new(NoServerSessionStorage {});
        }
        Ok(Self(Arc::new(ArcSwap::from_pointee(config))))
    }

    /// Takes over what another one has, for the connections that begin from now on.
    pub fn replace(&self, other: &Self) {
        self.0.store(other.0.load_full());
    }

    /// Does the handshake of a connection that may speak these protocols (ALPN).
    pub fn acceptor(&self, protocols: &[&[u8]]) -> TlsAcceptor {
        let mut config = ServerConfig::clone(&self.0.load());
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err(describe(&pem::Error::NoItemsFound)),
        found => found.map_err(|error| describe(&error)),
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(pem)? {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(roots)
}

fn unfit(error: rustls::Error) -> TlsError {
    let mismatch = rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch);
    let other = "the key belongs to another certificate";
    TlsError::Unfit(if error == mismatch { other.to_owned() } else { error.to_string() })
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

    fn read(certificate: &str, key: &str) -> Result<Tls, TlsError> {
        Tls::from_pem(certificate.as_bytes(), key.as_bytes(), ClientRules::default())
    }

    fn rejected(certificate: &str, key: &str) -> String {
        read(certificate, key).unwrap_err().to_string()
    }

    #[test]
    fn a_certificate_and_its_own_key_are_taken() {
        let (certificate, key) = pair();
        assert!(read(&certificate, &key).is_ok());
        // Keys and certificates often share a file; what else is in there does not matter.
        let both = format!("{key}{certificate}");
        assert!(read(&both, &both).is_ok());
    }

    #[test]
    fn a_rejected_pair_has_a_reason() {
        let ((certificate, key), (_, other)) = (pair(), pair());
        assert!(
            rejected("", &key).starts_with("cannot read the certificate: the text is not in PEM")
        );
        assert!(rejected(&key, &key).starts_with("cannot read the certificate"));
        assert!(rejected(&certificate, &certificate).starts_with("cannot read the private key"));
        let expected = "certificate and key cannot be used: the key belongs to another certificate";
        assert_eq!(rejected(&certificate, &other), expected);
    }

    #[test]
    fn authorities_of_clients_are_certificates() {
        let (certificate, key) = pair();
        let read = |authorities: &str| {
            let authorities = Some(authorities.as_bytes());
            let clients = ClientRules { authorities, min_version: TlsVersion::Tls12 };
            Tls::from_pem(certificate.as_bytes(), key.as_bytes(), clients)
        };
        assert!(read(&certificate).is_ok());
        for wrong in ["", &key] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.starts_with("cannot read the authorities of clients: "), "{error}");
        }
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
        let error = Tls::from_der(Vec::new(), key, ClientRules::default()).unwrap_err().to_string();
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
        let tls = read(&certificate, &key).unwrap();
        assert_eq!(format!("{tls:?}"), "Tls { .. }");
    }
}
