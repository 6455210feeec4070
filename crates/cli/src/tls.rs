//! Certificates: read from files, or self-signed.

use std::path::Path;

use jitney_net::Tls;
use jitney_net::tls::TlsError;

use crate::address::Address;
use crate::failure::{Failure, cannot};

/// Reads a certificate, with its chain if it has one, and its key.
pub fn read(certificate: &Path, key: &Path) -> Result<Tls, Failure> {
    let (certificates, secret) = (bytes(certificate)?, bytes(key)?);
    Tls::from_pem(&certificates, &secret).map_err(|error| {
        let file = match error {
            TlsError::Certificate(_) | TlsError::Unfit(_) => certificate,
            TlsError::Key(_) => key,
        };
        Failure::failed(format!("{}: {error}", file.display()))
            .hint("certificates and keys are PEM files: -----BEGIN CERTIFICATE-----, -----BEGIN PRIVATE KEY-----")
    })
}

fn bytes(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| Failure::file("read", file, &error))
}

/// A certificate for the names of this machine and of these addresses.
pub fn self_signed(addresses: &[&Address]) -> Result<Tls, Failure> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(addresses.iter().filter_map(|address| address.host()).map(str::to_owned));
    names.sort();
    names.dedup();
    Tls::self_signed(names).map_err(cannot("make a certificate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_file_is_named() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("keystore.p12");
        std::fs::write(&file, [0x30, 0x82, 1, 2]).expect("file");
        let failure = read(&file, &file).expect_err("an error");
        assert!(failure.message.contains("keystore.p12: cannot read the certificate"), "{failure}");
        let failure = read(&dir.path().join("absent.pem"), &file).expect_err("an error");
        assert!(failure.message.starts_with("cannot read "), "{failure}");
    }

    #[test]
    fn a_certificate_is_made_for_any_address() {
        for host in ["0.0.0.0", "example.org", "::"] {
            assert!(self_signed(&[&Address::tcp(host, 1)]).is_ok(), "{host}");
        }
    }
}
