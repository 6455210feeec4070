//! The addresses whose claims about tenants count although keys have names.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Networks of proxies that know their clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<(IpAddr, u8)>);

impl TrustedProxies {
    /// Whether a connection from here is one of theirs; the address is as the access log writes it.
    pub(super) fn contain(&self, address: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let address = address.trim_start_matches('/').parse::<SocketAddr>();
        address.is_ok_and(|from| {
            let from = from.ip().to_canonical();
            self.0.iter().any(|(network, length)| is_within(from, *network, *length))
        })
    }
}

impl FromStr for TrustedProxies {
    type Err = String;

    /// Addresses and networks, separated by commas: `10.0.0.7, 192.168.0.0/16, fd00::/8`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
        let networks = parts.map(|part| {
            let (address, length) = part.split_once('/').unwrap_or((part, ""));
            let wrong = || format!("{part:?} is no address and no network such as 10.0.0.0/8");
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let length = if part.contains('/') { length.parse().ok() } else { Some(most) };
            let length = length.filter(|length| *length <= most).ok_or_else(wrong)?;
            Ok((address, length))
        });
        networks.collect::<Result<_, String>>().map(Self)
    }
}

/// Whether the first bits of two addresses are the same.
fn is_within(address: IpAddr, network: IpAddr, length: u8) -> bool {
    let differ = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    differ >= u32::from(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        let proxies: TrustedProxies = "10.1.2.3,192.168.0.0/16 fd00::/8".parse().unwrap();
        for (address, expected) in [
            ("/10.1.2.3:80", true),
            ("/10.1.2.4:80", false),
            ("/192.168.77.1:5", true),
            ("/192.169.0.1:5", false),
            ("/[fd00::1]:5", true),
            ("/[::ffff:10.1.2.3]:5", true),
            ("/[fe00::1]:5", false),
            ("unix", false),
            ("", false),
        ] {
            assert_eq!(proxies.contain(address), expected, "{address}");
        }
        let all: TrustedProxies = "0.0.0.0/0".parse().unwrap();
        assert!(all.contain("/1.2.3.4:5") && !all.contain("/[fd00::1]:5"));
        assert!(!TrustedProxies::default().contain("/127.0.0.1:1"));
    }

    #[test]
    fn what_is_no_network_is_said() {
        for wrong in ["localhost", "10.0.0.0/33", "10.0.0.0/", "fd00::/129", "10.0.0.0/x"] {
            assert!(wrong.parse::<TrustedProxies>().unwrap_err().contains(wrong));
        }
    }
}
