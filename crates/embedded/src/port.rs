//! A free loopback port outside the ephemeral range of outgoing connections.
//!
//! A server that restarts must find its port free. An outgoing connection can take a port of the ephemeral range
//! meanwhile, and a client that keeps dialling such a port can connect to itself.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

const LOWEST: u16 = 10_240;
const ATTEMPTS: usize = 64;

/// Returns a port of 127.0.0.1 that was free just now. Another process may still take it: a caller that fails to bind
/// it tries again with another port.
///
/// # Errors
///
/// Fails if no loopback port can be bound.
pub fn free_port() -> io::Result<u16> {
    let ceiling = ephemeral_start();
    for _ in 0..ATTEMPTS {
        let bytes = uuid::Uuid::new_v4().into_bytes();
        let port = LOWEST + u16::from_be_bytes([bytes[0], bytes[1]]) % (ceiling - LOWEST);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    // No free port was found in the range: take any port the system offers.
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// First port of the ephemeral range. The fallback, 32768, is Linux's default and below macOS' 49152.
fn ephemeral_start() -> u16 {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .filter(|start| *start > LOWEST + 1_024)
        .unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_port_is_outside_the_ephemeral_range() {
        for _ in 0..50 {
            let port = free_port().unwrap();
            assert!((LOWEST..ephemeral_start()).contains(&port), "{port}");
        }
    }
}
