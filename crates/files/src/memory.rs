//! The memory of a process for the bytes of files: what does not fit waits.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit.
const UNIT: u64 = 1_024;

/// A budget of bytes, shared by all uploads, downloads and requests of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FileMemory {
    permits: Arc<Semaphore>,
    units: u32,
}

/// Memory that is in use until this is dropped.
#[derive(Debug)]
pub struct Held {
    _permit: Option<OwnedSemaphorePermit>,
}

impl FileMemory {
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).min(Semaphore::MAX_PERMITS as u32);
        Self { permits: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Waits for `bytes` of memory. More than there is counts as all of it.
    pub async fn hold(&self, bytes: u64) -> Held {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units);
        // The semaphore is never closed.
        Held { _permit: Arc::clone(&self.permits).acquire_many_owned(units).await.ok() }
    }

    /// Bytes that are not in use.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.permits.available_permits() as u64 * UNIT
    }
}

/// Bytes with the memory that they use.
struct HeldBytes {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Held {
    /// The bytes, with the memory held until the last copy is dropped.
    #[must_use]
    pub fn bytes(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, _held: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_returns_with_the_last_copy() {
        let memory = FileMemory::new(10 * UNIT);
        let bytes = memory.hold(4 * UNIT).await.bytes(Bytes::from_static(b"x"));
        let copy = bytes.clone();
        drop(bytes);
        assert_eq!(memory.free(), 6 * UNIT);
        drop(copy);
        assert_eq!(memory.free(), 10 * UNIT);
        // More than there is must not wait for ever.
        let all = memory.hold(99 * UNIT).await;
        assert_eq!(memory.free(), 0);
        drop(all);
    }
}
