//! Which addresses a request may connect to: those of the public internet, and the networks that the operator named.
//!
//! Judged after names are resolved, so that no spelling of a host and no name server gets around it.

use crate::config::Network;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a request may not connect to this address; `None` if it may.
pub(super) fn refusal(address: IpAddr, allowed: &[Network]) -> Option<&'static str> {
    let is_allowed = |address: IpAddr| allowed.iter().any(|network| network.contains(address));
    // `::ffff:127.0.0.1` reaches what `127.0.0.1` does.
    let address = address.to_canonical();
    if is_allowed(address) {
        return None;
    }
    match address {
        IpAddr::V4(address) => refusal_v4(address),
        IpAddr::V6(address) => match behind_nat64(address) {
            Some(behind) if is_allowed(behind.into()) => None,
            Some(behind) => refusal_v4(behind),
            None => refusal_v6(address),
        },
    }
}

/// The address of IPv4 that a translator (RFC 6052) reaches for this one.
fn behind_nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = address.segments();
    ([a, b, c, d, e, f] == [0x64, 0xff9b, 0, 0, 0, 0])
        .then(|| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

/// The ranges of the registry of special addresses (RFC 6890 and its followers) that are not globally reachable.
fn refusal_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    Some(match (a, b, c) {
        (0, ..) => "unspecified",
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => "private",
        (100, 64..=127, _) => "shared by a provider's customers",
        (127, ..) => "loopback",
        (169, 254, _) => "link-local",
        (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _) => "reserved",
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => "for documentation",
        (224..=239, ..) => "multicast",
        (240..=255, ..) => "reserved",
        _ => return None,
    })
}

/// Whatever is not global unicast, and the ranges in it that are not globally reachable or that carry another address.
fn refusal_v6(address: Ipv6Addr) -> Option<&'static str> {
    let [first, second, ..] = address.segments();
    Some(match (first, second) {
        _ if address.is_unspecified() => "unspecified",
        _ if address.is_loopback() => "loopback",
        (0xfc00..=0xfdff, _) => "private",
        (0xfe80..=0xfebf, _) => "link-local",
        (0xfec0..=0xfeff, _) => "site-local",
        (0xff00..=0xffff, _) => "multicast",
        (0x2001, 0xdb8) | (0x3fff, 0..=0xfff) => "for documentation",
        // Teredo among them, which carries an address of IPv4.
        (0x2001, 0..=0x1ff) => "reserved",
        (0x2002, _) => "a 6to4 address",
        (0x2000..=0x3fff, _) => return None,
        _ => "reserved",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(address: &str, allowed: &[&str]) -> Option<&'static str> {
        let allowed: Vec<Network> = allowed.iter().map(|network| network.parse().unwrap()).collect();
        refusal(address.parse().unwrap(), &allowed)
    }

    #[test]
    fn addresses_of_the_internet_are_allowed() {
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00::1",
            "2001:4860:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ] {
            assert_eq!(judge(address, &[]), None, "{address}");
        }
    }

    #[test]
    fn c153_addresses_inside_are_refused_however_they_are_written() {
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:101:101::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(judge(address, &[]).is_some(), "{address}");
        }
    }

    #[test]
    fn a_network_that_was_named_is_allowed_and_nothing_beside_it() {
        assert_eq!(judge("127.0.0.1", &["127.0.0.0/8"]), None);
        assert_eq!(judge("::ffff:127.0.0.1", &["127.0.0.0/8"]), None);
        assert_eq!(judge("64:ff9b::a00:1", &["10.0.0.0/8"]), None);
        assert_eq!(judge("10.0.0.1", &["127.0.0.0/8", "::/0"]), Some("private"));
        assert_eq!(judge("::1", &["127.0.0.0/8"]), Some("loopback"));
    }
}
