//! Hashes of steps, messages and requests.

use crate::StoreError;

/// SHA-256 of exact bytes.
pub type Hash = [u8; 32];

/// Reads a stored hash.
pub(crate) fn hash(bytes: &[u8]) -> Result<Hash, StoreError> {
    bytes.try_into().map_err(|_| StoreError::Corrupt("a hash is not 32 bytes long".into()))
}
