//! Addresses and networks that somebody named: proxies that are trusted, receivers of webhooks.

use std::net::IpAddr;
use std::str::FromStr;

/// Some addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<(IpAddr, u8)>);

impl Networks {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an address is one of them.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|(network, length)| is_within(address, *network, *length))
    }
}

impl FromStr for Networks {
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
        let networks: Networks = "10.1.2.3,192.168.0.0/16 fd00::/8".parse().unwrap();
        for (address, expected) in [
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            ("192.168.77.1", true),
            ("192.169.0.1", false),
            ("fd00::1", true),
            ("::ffff:10.1.2.3", true),
            ("fe00::1", false),
        ] {
            assert_eq!(networks.contain(address.parse().unwrap()), expected, "{address}");
        }
        let all: Networks = "0.0.0.0/0".parse().unwrap();
        let contained = ["1.2.3.4", "fd00::1"].map(|address| all.contain(address.parse().unwrap()));
        assert_eq!(contained, [true, false]);
        assert!(!Networks::default().contain("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_is_said() {
        for wrong in ["localhost", "10.0.0.0/33", "10.0.0.0/", "fd00::/129", "10.0.0.0/x"] {
            assert!(wrong.parse::<Networks>().unwrap_err().contains(wrong));
        }
    }
}
