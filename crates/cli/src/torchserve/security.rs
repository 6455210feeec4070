//! Tokens and certificates, as `config.properties` speaks of them.

use std::path::PathBuf;
use std::time::Duration;

use jitney_net::Tls;
use jitney_settings::server::{CLIENT_CA, TLS_MIN_VERSION};
use jitney_settings::torchserve::{
    CERTIFICATE_FILE, DISABLE_TOKEN_AUTHORIZATION, KEYSTORE_FILE, PRIVATE_KEY_FILE,
    TOKEN_EXPIRATION_MIN,
};
use jitney_settings::{TlsVersion, Values};

use crate::address::Address;
use crate::failure::Failure;
use crate::tls::{self, FollowedTls, TlsFiles};

/// The longest life of a token: ten years.
const LIFETIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How to turn what Java reads into what everything else reads.
const CONVERT: &str = "convert it with `openssl pkcs12 -in keystore.p12 -nodes -out server.pem` (a JKS one \
    first with `keytool -importkeystore -deststoretype PKCS12 ...`), then set both private_key_file and \
    certificate_file to server.pem";

/// How long tokens live; nothing if they are switched off.
pub fn tokens(values: &Values) -> Result<Option<Duration>, Failure> {
    if values.flag(&DISABLE_TOKEN_AUTHORIZATION) {
        return Ok(None);
    }
    let lifetime: Duration = values.value(&TOKEN_EXPIRATION_MIN);
    if !lifetime.is_zero() && lifetime <= LIFETIME_MAX {
        return Ok(Some(lifetime));
    }
    let minutes = values.show(&TOKEN_EXPIRATION_MIN).unwrap_or_default();
    Err(Failure::failed(format!("token_expiration_min={minutes}: not a time a token can live")))
}

/// The certificate of the addresses that need one: one that is made, or one that is followed. Without any, the
/// server makes its own, as upstream tries to. Clients of TorchServe may speak TLS 1.2.
pub fn tls(
    values: &Values,
    secure: Vec<&Address>,
    remarks: &mut Vec<String>,
) -> Result<(Option<Tls>, Option<FollowedTls>), Failure> {
    let Some(address) = secure.first() else { return Ok((None, None)) };
    let min_version = values.read(&TLS_MIN_VERSION).unwrap_or(TlsVersion::Tls12);
    let client_ca = values.read::<PathBuf>(&CLIENT_CA);
    match (values.read::<PathBuf>(&CERTIFICATE_FILE), values.read::<PathBuf>(&PRIVATE_KEY_FILE)) {
        (Some(certificate), Some(key)) => {
            let followed = TlsFiles { certificate, key, client_ca, min_version }.load()?;
            return Ok((Some(followed.tls.clone()), Some(followed)));
        }
        (None, None) if client_ca.is_some() => return Err(alone("client_ca", "certificate_file")),
        (None, None) => {}
        (Some(_), None) => return Err(alone("certificate_file", "private_key_file")),
        (None, Some(_)) => return Err(alone("private_key_file", "certificate_file")),
    }
    if let Some(keystore) = values.show(&KEYSTORE_FILE) {
        let message =
            format!("{address} needs a certificate, and keystore={keystore} cannot be read");
        return Err(Failure::failed(message).hint(CONVERT));
    }
    remarks.push(format!(
        "{address} has no certificate (certificate_file, private_key_file); the server made one that no client trusts by itself"
    ));
    Ok((Some(tls::self_signed(&secure, min_version)?), None))
}

fn alone(given: &str, missing: &str) -> Failure {
    Failure::failed(format!("{given} is set and {missing} is not"))
        .hint("a certificate and its key may stand in one file; set both keys to it then")
}
