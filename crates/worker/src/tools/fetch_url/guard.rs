//! Which addresses `fetch_url` may connect to: those of the public internet, unless the agent or the worker allows more.
//!
//! Names are judged by the addresses they resolve to, inside the resolver that the connection itself uses, so a name whose
//! answer changes between a check and the connection gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Whether the public internet routes the address: no loopback, private, link-local (where clouds serve credentials), shared
/// or otherwise special network, in any form that carries an IPv4 address inside an IPv6 one.
pub(super) fn is_public(address: IpAddr) -> bool {
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
    // Azure's metadata and Oracle's and Alibaba's live inside otherwise public or shared ranges.
    !special && address != Ipv4Addr::new(168, 63, 129, 16)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Global unicast is 2000::/3; of it, documentation, benchmarking and Teredo are not public.
    let [a, b, ..] = address.segments();
    a & 0xe000 == 0x2000 && !matches!((a, b), (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff))
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64 and 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(v4(high, low)),
        // The well-known prefix, and the prefix for networks' own translators, of which the last 32 bits are the usual form.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, _, _, _, high, low] => Some(v4(high, low)),
        [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Checks everything about a URL that can be known without resolving its name.
pub(super) fn check_url(url: &Url, allow_private: bool) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("only http and https URLs can be fetched, not `{}`", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL with a user name or password cannot be fetched".into());
    }
    // The parser has turned every notation of an IPv4 address (decimal, octal, hexadecimal) into an address.
    let literal = match url.host() {
        Some(Host::Ipv4(v4)) => Some(IpAddr::V4(v4)),
        Some(Host::Ipv6(v6)) => Some(IpAddr::V6(v6)),
        Some(Host::Domain(_)) => None,
        None => return Err("the URL has no host".into()),
    };
    match literal {
        Some(address) if !allow_private && !is_public(address) => Err(refused(&address.to_string())),
        Some(_) | None => Ok(()),
    }
}

pub(super) fn refused(host: &str) -> String {
    format!("`{host}` is not on the public internet, and this agent may not fetch private addresses")
}

/// Resolves names as the system does and keeps the addresses that are permitted.
#[derive(Debug, Clone, Copy)]
pub(in crate::tools) struct GuardedResolver {
    pub(in crate::tools) allow_private: bool,
}

/// A name of which no address is permitted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct AddressRefused(pub(super) String);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let permitted = permitted(found, allow_private);
            if permitted.is_empty() {
                return Err(AddressRefused(refused(name.as_str())).into());
            }
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

fn permitted(found: Vec<SocketAddr>, allow_private: bool) -> Vec<SocketAddr> {
    found.into_iter().filter(|address| allow_private || is_public(address.ip())).collect()
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

    #[test]
    fn odd_notations_of_an_address_are_seen_through() {
        for url in [
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://0/",
            "http://[::ffff:7f00:1]/",
            "http://169.254.169.254/latest/meta-data",
            "http://127.0.0.1./",
            "http://①②⑦.0.0.1/",
        ] {
            let parsed = Url::parse(url).unwrap();
            assert!(check_url(&parsed, false).is_err(), "{url}");
            assert_eq!(check_url(&parsed, true), Ok(()), "{url}");
        }
    }

    #[test]
    fn other_schemes_and_credentials_are_refused_even_where_private_addresses_are_allowed() {
        for url in ["file:///etc/passwd", "ftp://h/", "data:text/plain,x", "http://u:p@h/", "http://u@h/"] {
            assert!(check_url(&Url::parse(url).unwrap(), true).is_err(), "{url}");
        }
        assert_eq!(check_url(&Url::parse("https://example.org/a?b#c").unwrap(), false), Ok(()));
    }

    #[test]
    fn of_a_mixed_answer_only_public_addresses_are_used() {
        let found = vec!["127.0.0.1:0".parse().unwrap(), "8.8.8.8:0".parse().unwrap()];
        assert_eq!(permitted(found.clone(), false), ["8.8.8.8:0".parse().unwrap()]);
        assert_eq!(permitted(found.clone(), true), found);
    }
}
