//! The TLS provider of a process.

/// Installs the process-wide TLS provider, without which building a client panics. Idempotent.
pub fn install_tls_provider() {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
