//! Limits the hosts that requests on behalf of tenants may reach: `fetch_url`, the tool servers of their agents and
//! their webhooks reach the public internet, unless the operator allows more.
//!
//! Host names are checked by their addresses inside the connection's own resolver, so a DNS answer that changes
//! between check and connection (DNS rebinding) gains nothing.

use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use longhaul_domain::addresses::is_public;

/// Checks a URL's host as far as possible without resolving its name.
///
/// # Errors
/// The URL has no host, or its address is not permitted; as a message.
pub fn check_address(url: &Url, allow_private: bool) -> Result<(), String> {
    // The URL parser has already normalised every notation of an IPv4 address (decimal, octal, hexadecimal).
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

pub(crate) fn refused(host: &str) -> String {
    format!("`{host}` is not on the public internet, and private addresses may not be reached")
}

/// Resolves names through the system resolver and drops addresses that are not permitted.
#[derive(Debug, Clone, Copy)]
pub struct GuardedResolver {
    pub allow_private: bool,
}

/// None of the name's addresses is permitted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AddressRefused(pub(crate) String);

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

/// Checks that the URL's host has a public address.
///
/// # Errors
/// The host has none, or its name cannot be resolved; as a message.
pub async fn check_host(url: &str) -> Result<(), String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    check_address(&url, false)?;
    let Some(Host::Domain(name)) = url.host() else { return Ok(()) };
    let found =
        tokio::net::lookup_host((name, 0)).await.map_err(|error| format!("`{name}` is not resolved: {error}"))?;
    if permitted(found.collect(), false).is_empty() { Err(refused(name)) } else { Ok(()) }
}

fn permitted(found: Vec<SocketAddr>, allow_private: bool) -> Vec<SocketAddr> {
    found.into_iter().filter(|address| allow_private || is_public(address.ip())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_address_is_refused_in_every_notation() {
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
            assert!(check_address(&parsed, false).is_err(), "{url}");
            assert_eq!(check_address(&parsed, true), Ok(()), "{url}");
        }
    }

    #[test]
    fn only_public_addresses_of_a_name_are_used() {
        let found = vec!["127.0.0.1:0".parse().unwrap(), "8.8.8.8:0".parse().unwrap()];
        assert_eq!(permitted(found.clone(), false), ["8.8.8.8:0".parse().unwrap()]);
        assert_eq!(permitted(found.clone(), true), found);
    }
}
