//! Tokens and certificates, as `config.properties` speaks of them.

use std::path::PathBuf;
use std::time::Duration;

use jitney_net::Tls;
use jitney_settings::Values;
use jitney_settings::torchserve::{
    CERTIFICATE_FILE, DISABLE_TOKEN_AUTHORIZATION, KEYSTORE_FILE, PRIVATE_KEY_FILE,
    TOKEN_EXPIRATION_MIN,
};

use crate::address::Address;
use crate::failure::Failure;
use crate::tls;

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

/// The certificate of the addresses that need one. Without any, the server makes its own, as upstream
/// tries to.
pub fn tls(
    values: &Values,
    secure: Vec<&Address>,
    remarks: &mut Vec<String>,
) -> Result<Option<Tls>, Failure> {
    let Some(address) = secure.first() else { return Ok(None) };
    match (values.read::<PathBuf>(&CERTIFICATE_FILE), values.read::<PathBuf>(&PRIVATE_KEY_FILE)) {
        (Some(certificate), Some(key)) => return tls::read(&certificate, &key).map(Some),
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
    tls::self_signed(&secure).map(Some)
}

fn alone(given: &str, missing: &str) -> Failure {
    Failure::failed(format!("{given} is set and {missing} is not"))
        .hint("a certificate and its key may stand in one file; set both keys to it then")
}
