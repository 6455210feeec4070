//! Certificates: read from files, which are followed, or self-signed.

use std::path::{Path, PathBuf};

use jitney_net::tls::TlsError;
use jitney_net::{ClientRules, Tls};
use jitney_server::FieldChanges;
use jitney_settings::TlsVersion;

use crate::address::Address;
use crate::failure::{Failure, cannot};
use crate::follow::{FileAudit, follow};

/// The command that makes a certificate for this machine, which a client can trust by itself: one for an authority,
/// as openssl makes it without being asked, is none.
pub const MAKE_CERTIFICATE: &str = "openssl req -x509 -newkey rsa:2048 -nodes -days 365 -keyout key.pem -out cert.pem \
    -subj /CN=localhost -addext basicConstraints=critical,CA:FALSE \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1";

/// Where a server's certificate comes from, and what is asked of clients.
#[derive(Debug)]
pub struct TlsFiles {
    /// The certificate, with its chain if it has one.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authorities of clients, if they have to show certificates.
    pub client_ca: Option<PathBuf>,
    /// The oldest version of TLS that is spoken.
    pub min_version: TlsVersion,
}

/// What the files had when they were read.
#[derive(PartialEq)]
struct TlsTexts {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// A certificate that is in force, and the files it was read from.
pub struct FollowedTls {
    /// What listeners use.
    pub tls: Tls,
    files: TlsFiles,
    texts: TlsTexts,
}

impl TlsFiles {
    /// Reads the files for the first time.
    pub fn load(self) -> Result<FollowedTls, Failure> {
        let texts = self.read()?;
        Ok(FollowedTls { tls: self.tls(&texts)?, texts, files: self })
    }

    fn read(&self) -> Result<TlsTexts, Failure> {
        Ok(TlsTexts {
            certificate: bytes(&self.certificate)?,
            key: bytes(&self.key)?,
            client_ca: self.client_ca.as_deref().map(bytes).transpose()?,
        })
    }

    fn tls(&self, texts: &TlsTexts) -> Result<Tls, Failure> {
        let authorities = texts.client_ca.as_deref();
        let clients = ClientRules { authorities, min_version: self.min_version };
        Tls::from_pem(&texts.certificate, &texts.key, clients).map_err(|error| {
            let file = match error {
                TlsError::Certificate(_) | TlsError::Unfit(_) => &self.certificate,
                TlsError::Key(_) => &self.key,
                TlsError::Authorities(_) => self.client_ca.as_ref().unwrap_or(&self.certificate),
            };
            let hint = match error {
                TlsError::Unfit(_) => format!("`{MAKE_CERTIFICATE}` makes a pair"),
                TlsError::Certificate(_) | TlsError::Key(_) | TlsError::Authorities(_) => {
                    "certificates and keys are PEM files: -----BEGIN CERTIFICATE-----, -----BEGIN PRIVATE KEY-----"
                        .to_owned()
                }
            };
            Failure::failed(format!("{}: {error}", file.display())).hint(hint)
        })
    }
}

impl FollowedTls {
    /// Puts in force what the files have, whenever they change; without end. Connections that are open stay as
    /// they are.
    pub async fn follow(self, audit: FileAudit) {
        let Self { tls, files, texts } = self;
        let read = || files.read().map_err(|failure| failure.message);
        let apply = |texts: &TlsTexts| {
            let changed = files.tls(texts).map_err(|failure| failure.message)?;
            tls.replace(&changed);
            Ok(FieldChanges::default())
        };
        follow(&files.certificate, audit, texts, read, apply).await;
    }
}

fn bytes(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| Failure::file("read", file, &error))
}

/// A certificate for the names of this machine and of these addresses.
pub fn self_signed(addresses: &[&Address], min_version: TlsVersion) -> Result<Tls, Failure> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    names.extend(addresses.iter().filter_map(|address| address.host()).map(str::to_owned));
    names.sort();
    names.dedup();
    let clients = ClientRules { authorities: None, min_version };
    Tls::self_signed(names, clients).map_err(cannot("make a certificate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_file_is_named() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("keystore.p12");
        std::fs::write(&file, [0x30, 0x82, 1, 2]).expect("file");
        let read = |certificate: &Path| {
            let (certificate, key) = (certificate.to_owned(), file.clone());
            let (client_ca, min_version) = (None, TlsVersion::default());
            TlsFiles { certificate, key, client_ca, min_version }.load().err().expect("an error")
        };
        let failure = read(&file);
        assert!(failure.message.contains("keystore.p12: cannot read the certificate"), "{failure}");
        let failure = read(&dir.path().join("absent.pem"));
        assert!(failure.message.starts_with("cannot read "), "{failure}");
    }

    #[test]
    fn a_certificate_is_made_for_any_address() {
        for host in ["0.0.0.0", "example.org", "::"] {
            assert!(self_signed(&[&Address::tcp(host, 1)], TlsVersion::Tls12).is_ok(), "{host}");
        }
    }
}
