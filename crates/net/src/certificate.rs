//! What certificates and keys say of themselves, read from their DER: the length of a key, the subject of a
//! certificate. Decides nothing; rustls verifies.

use std::fmt::Write as _;

use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The version of a certificate, which the oldest ones do not have.
const VERSION: u8 = 0xa0;
/// The kinds of text that are UTF-8 or a part of it.
const TEXTS: [u8; 4] = [0x0c, 0x12, 0x13, 0x16];

/// The names of attributes, by their object ids. Others are written as numbers.
const ATTRIBUTES: [(&[u8], &str); 11] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "street"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];

/// The subject of a certificate as RFC 4514 writes it, such as `CN=client,O=Example`; none where it is empty.
/// What could end a part is escaped, so that two subjects are never written alike.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    let (certificate, _) = der_value(certificate, SEQUENCE)?;
    let (mut rest, _) = der_value(certificate, SEQUENCE)?;
    if let Some((_, after)) = der_value(rest, VERSION) {
        rest = after;
    }
    // Serial number, algorithm, issuer, validity.
    for tag in [INTEGER, SEQUENCE, SEQUENCE, SEQUENCE] {
        rest = der_value(rest, tag)?.1;
    }
    let parts = der_values(der_value(rest, SEQUENCE)?.0, SET)?;
    let parts = parts.into_iter().rev().map(|part| {
        let attributes: Option<Vec<_>> =
            der_values(part, SEQUENCE)?.into_iter().map(attribute).collect();
        Some(attributes?.join("+"))
    });
    let text = parts.collect::<Option<Vec<_>>>()?.join(",");
    Some(text).filter(|text| !text.is_empty())
}

/// One attribute with its value.
fn attribute(der: &[u8]) -> Option<String> {
    let (id, value) = der_value(der, OBJECT_ID)?;
    let (tag, text, _) = der_any(value)?;
    let named = ATTRIBUTES.iter().find(|(known, _)| *known == id);
    let text = std::str::from_utf8(text).ok().filter(|_| TEXTS.contains(&tag));
    Some(match (named, text) {
        (Some((_, name)), Some(text)) => format!("{name}={}", escaped(text)),
        (Some((_, name)), None) => format!("{name}=#{}", hex(value)),
        (None, _) => format!("{}=#{}", dotted(id), hex(value)),
    })
}

fn escaped(text: &str) -> String {
    let (mut out, last) = (String::with_capacity(text.len()), text.len());
    for (at, letter) in text.char_indices() {
        let outer = at == 0 || at + 1 == last;
        match letter {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => out.extend(['\\', letter]),
            ' ' if outer => out.push_str("\\ "),
            '#' if at == 0 => out.push_str("\\#"),
            letter if letter.is_control() => {
                let bytes = &text.as_bytes()[at..at + letter.len_utf8()];
                out.extend(bytes.iter().map(|byte| format!("\\{byte:02X}")));
            }
            letter => out.push(letter),
        }
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// An object id in numbers; the first byte has two of them.
fn dotted(id: &[u8]) -> String {
    let (mut out, mut number) = (String::new(), 0_u64);
    for (at, byte) in id.iter().enumerate() {
        if at == 0 {
            let first = (byte / 40).min(2);
            out = format!("{first}.{}", byte - 40 * first);
            continue;
        }
        number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            // Writing to memory does not fail.
            let _ = write!(out, ".{number}");
            number = 0;
        }
    }
    out
}

/// The length of an RSA key; none for another kind of key.
pub(crate) fn rsa_bits(key: &PrivateKeyDer<'_>) -> Option<usize> {
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
    let (found, value, rest) = der_any(der)?;
    (found == tag).then_some((value, rest))
}

/// The values of a DER text, if they all have this tag.
fn der_values(mut der: &[u8], tag: u8) -> Option<Vec<&[u8]>> {
    let mut values = Vec::new();
    while !der.is_empty() {
        let (value, rest) = der_value(der, tag)?;
        values.push(value);
        der = rest;
    }
    Some(values)
}

/// The first value of a DER text, with its tag before it and what follows behind it.
fn der_any(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
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
    let (value, rest) = rest.split_at_checked(length)?;
    Some((*found, value, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn subject_of(parts: &[(DnType, &str)]) -> Option<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        subject(made.der())
    }

    #[test]
    fn a_subject_is_written_with_its_last_part_first() {
        let (name, company) = (DnType::CommonName, DnType::OrganizationName);
        let text = |parts: &[(DnType, &str)]| subject_of(parts).unwrap_or_default();
        let both = [(company.clone(), "Example"), (name.clone(), "client")];
        assert_eq!(text(&both), "CN=client,O=Example");
        assert_eq!(subject_of(&[]), None);
        // The name of one part does not forge another.
        assert_eq!(text(&[(name.clone(), "a,O=b+c")]), r"CN=a\,O=b\+c");
        assert_eq!(text(&[(name.clone(), "#a ")]), r"CN=\#a\ ");
        assert_eq!(text(&[(name, "\u{e9}\n")]), "CN=\u{e9}\\0A");
        let unknown = DnType::CustomDnType(vec![1, 2, 840, 7]);
        assert_eq!(text(&[(unknown, "x")]), "1.2.840.7=#0C0178");
    }

    #[test]
    fn what_is_no_certificate_has_no_subject() {
        let whole = KeyPair::generate().unwrap();
        let whole = CertificateParams::default().self_signed(&whole).unwrap();
        assert!(subject(whole.der()).is_some());
        for length in 0..whole.der().len() {
            assert_eq!(subject(&whole.der()[..length]), None);
        }
    }
}
