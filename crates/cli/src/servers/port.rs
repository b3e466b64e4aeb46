//! A free loopback port outside the range the system hands to outgoing connections.
//!
//! A server that is stopped and started again must find its port free. A port from the ephemeral range can be taken
//! by any outgoing connection meanwhile; worse, a client that keeps dialling it can connect to itself.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

const LOWEST: u16 = 10_240;
const ATTEMPTS: usize = 64;

/// A port that was free on 127.0.0.1 a moment ago. Another process may still take it first: a caller that binds it
/// later tries again with another when that fails.
///
/// # Errors
///
/// When nothing can be bound on loopback at all.
pub fn free_port() -> io::Result<u16> {
    let ceiling = ephemeral_start();
    for _ in 0..ATTEMPTS {
        let bytes = uuid::Uuid::new_v4().into_bytes();
        let port = LOWEST + u16::from_be_bytes([bytes[0], bytes[1]]) % (ceiling - LOWEST);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    // An unusual machine: any port the system offers is better than none.
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The first port of the ephemeral range; 32768 is Linux's default and below macOS' 49152.
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
    fn a_free_port_is_never_one_an_outgoing_connection_could_take() {
        for _ in 0..50 {
            let port = free_port().unwrap();
            assert!((LOWEST..ephemeral_start()).contains(&port), "{port}");
        }
    }
}
