//! The memory of a process for the bytes of files, shared between tenants: what does not fit waits.

use bytes::Bytes;
use longhaul_config::FilesConfig;
use longhaul_domain::TenantId;
use longhaul_fairness::{FairShare, Share};

/// Bytes of a body that is read without memory of its own. The number of connections bounds such bodies.
pub const SMALL_BYTES: u64 = 64 * 1_024;

/// A budget of bytes, shared by all uploads, downloads and requests of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FileMemory(FairShare<TenantId>);

/// Memory that is in use until this is dropped; none for a small body.
#[derive(Debug)]
pub struct Held {
    _share: Option<Share<TenantId>>,
}

impl FileMemory {
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        // Uploads that wait for each other's memory end: one at a time may exceed the limit by a file.
        Self(FairShare::new(bytes).overdraft(FilesConfig::FILE_BYTES as u64))
    }

    /// Waits for `bytes` of memory. More than there is counts as all of it.
    pub async fn hold(&self, tenant: TenantId, bytes: u64) -> Held {
        if bytes <= SMALL_BYTES {
            return Held { _share: None };
        }
        Held { _share: self.0.take(tenant, bytes).await }
    }

    /// Memory that grows as a body arrives.
    #[must_use]
    pub fn begin(&self, tenant: TenantId) -> Share<TenantId> {
        self.0.begin(tenant)
    }

    /// Bytes that are not in use.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.0.free()
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
    use uuid::Uuid;

    use super::*;

    const TENANT: TenantId = TenantId(Uuid::nil());

    #[tokio::test]
    async fn memory_returns_with_the_last_copy() {
        let memory = FileMemory::new(10 * SMALL_BYTES);
        let bytes = memory.hold(TENANT, 4 * SMALL_BYTES).await.bytes(Bytes::from_static(b"x"));
        let copy = bytes.clone();
        drop(bytes);
        assert_eq!(memory.free(), 6 * SMALL_BYTES);
        drop(copy);
        assert_eq!(memory.free(), 10 * SMALL_BYTES);
        // More than there is must not wait for ever.
        let all = memory.hold(TENANT, 99 * SMALL_BYTES).await;
        assert_eq!(memory.free(), 0);
        let small = memory.hold(TENANT, SMALL_BYTES).await;
        drop((all, small));
    }
}
