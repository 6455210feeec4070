//! Certificates: read from the files that flags and keys name, or made for want of any.

use std::path::Path;

use jitney_server::Tls;
use jitney_server::tls::TlsError;

use crate::address::Address;
use crate::failure::Failure;

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
    std::fs::read(file)
        .map_err(|error| Failure::failed(format!("cannot read {}: {error}", file.display())))
}

/// A certificate for the names by which this machine, and these doors, may be called.
pub fn self_signed(doors: &[&Address]) -> Result<Tls, Failure> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(doors.iter().filter_map(|door| door.host()).map(str::to_owned));
    names.sort();
    names.dedup();
    Tls::self_signed(names)
        .map_err(|error| Failure::failed(format!("cannot make a certificate: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_wrong_kind_is_named() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("keystore.p12");
        std::fs::write(&file, [0x30, 0x82, 1, 2]).expect("file");
        let failure = read(&file, &file).expect_err("refused");
        assert!(failure.message.contains("keystore.p12: cannot read the certificate"), "{failure}");
        let failure = read(&dir.path().join("absent.pem"), &file).expect_err("refused");
        assert!(failure.message.starts_with("cannot read "), "{failure}");
    }

    #[test]
    fn a_certificate_is_made_for_any_address() {
        for host in ["0.0.0.0", "example.org", "::"] {
            assert!(self_signed(&[&Address::tcp(host, 1)]).is_ok(), "{host}");
        }
    }
}
