//! Tells addresses that the public internet routes from all others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true if the public internet routes the address. False for loopback, private, link-local (cloud metadata
/// services), shared and other special networks, also when an IPv6 address embeds such an IPv4 address.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => embedded_v4(v6).map_or_else(|| is_public_v6(v6), is_public_v4),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = matches!(
        (a, b, c),
        (0 | 10 | 127 | 224..=255, _, _) // this network, private, loopback, multicast and reserved
            | (100, 64..=127, _)         // carrier-grade NAT
            | (169, 254, _)              // link-local, cloud metadata
            | (172, 16..=31, _)          // private
            | (192, 0, 0 | 2)            // protocol assignments, documentation
            | (192, 88, 99)              // 6to4 relays
            | (192, 168, _)              // private
            | (198, 18..=19, _)          // benchmarks
            | (198, 51, 100)             // documentation
            | (203, 0, 113) // documentation
    );
    // Metadata services of Azure (this address), Oracle and Alibaba (in ranges above) are outside the link-local
    // range.
    !special && address != Ipv4Addr::new(168, 63, 129, 16)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Global unicast is 2000::/3; of it, documentation, benchmarking and Teredo are not public.
    let [a, b, ..] = address.segments();
    a & 0xe000 == 0x2000 && !matches!((a, b), (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff))
}

/// Returns the IPv4 address embedded in an IPv6 address: mapped, compatible, NAT64 or 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(v4(high, low)),
        // The well-known NAT64 prefix. The local-use prefix (64:ff9b:1::/48) is never public: each network chooses
        // where the IPv4 address is in it.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "168.63.129.16",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a00:1",
            "64:ff9b:1:a9fe:a9:fe00:808:808",
            "2002:7f00:1::",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "fec0::1",
            "2001:db8::1",
            "2001::1",
            "100::1",
            "3fff::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in
            ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
        {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }
}
