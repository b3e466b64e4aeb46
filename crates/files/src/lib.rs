//! The bytes of files. A body is stored once per tenant and hash, in Postgres or in an S3-compatible store
//! (docs/design/files.md).
//!
//! [`Files::put`] takes bytes and gives their hash; the caller then names the body in a row of its own within
//! [`BODY_GRACE`](longhaul_store::files::BODY_GRACE). [`Files::get`] takes the hash and gives the bytes. Memory for
//! bytes is limited per process: see [`memory`].

pub mod media_type;
pub mod memory;
mod objects;

use bytes::Bytes;
use longhaul_config::FilesConfig;
use longhaul_domain::{TenantId, message::FileRef};
use longhaul_store::{
    Store, StoreError,
    database::retry::patiently,
    files::{BodyHash, BodyPlace, Content, NewBody, PutBody, hex_of},
};
use longhaul_telemetry::metrics::{self, FilePlace, FileRefusal};
use sha2::{Digest, Sha256};

use self::{
    memory::{FileMemory, Held},
    objects::Objects,
};

/// Bytes of a file that a download reads at a time.
const PART_BYTES: u64 = 256 * 1_024;

/// Errors of storing and reading files.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The object store does not answer, or refuses.
    #[error("the object store failed")]
    Objects(#[source] object_store::Error),
    /// An object does not have the bytes that were stored.
    #[error("the stored bytes of file {hash} changed")]
    Corrupt { hash: String },
    /// The tenant's quota has no room.
    #[error("the quota of files is used up")]
    OverQuota,
    /// One file is larger than [`FilesConfig::FILE_BYTES`].
    #[error("the file is larger than {} bytes", FilesConfig::FILE_BYTES)]
    TooLarge,
}

impl FilesError {
    /// Returns true if the same operation may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Objects(error) => !matches!(error, object_store::Error::NotFound { .. }),
            Self::Corrupt { .. } | Self::OverQuota | Self::TooLarge => false,
        }
    }
}

/// The files of an installation. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Files {
    store: Store,
    /// `None`: new bodies go to Postgres.
    objects: Option<Objects>,
    memory: FileMemory,
    quota: u64,
    upload: std::time::Duration,
    request_bytes: u64,
}

impl Files {
    /// # Errors
    /// The settings of the object store are unusable.
    pub fn new(store: Store, config: &FilesConfig) -> Result<Self, FilesError> {
        Ok(Self {
            store,
            objects: Objects::of_config(&config.s3)?,
            memory: FileMemory::new(config.memory_bytes),
            quota: config.tenant_bytes,
            upload: config.upload,
            request_bytes: config.request_bytes,
        })
    }

    /// Memory of the process for files.
    #[must_use]
    pub fn memory(&self) -> &FileMemory {
        &self.memory
    }

    /// Time for which an upload is kept.
    #[must_use]
    pub fn upload_kept(&self) -> std::time::Duration {
        self.upload
    }

    /// Most bytes of the files in one request to a model.
    #[must_use]
    pub fn request_bytes(&self) -> u64 {
        self.request_bytes
    }

    /// Stores a body, unless the tenant has it. It is removed if no row names it within
    /// [`BODY_GRACE`](longhaul_store::files::BODY_GRACE).
    ///
    /// # Errors
    /// See [`FilesError`].
    pub async fn put(&self, tenant: TenantId, bytes: &Bytes) -> Result<BodyHash, FilesError> {
        let put = self.put_body(tenant, bytes).await;
        match &put {
            Err(FilesError::OverQuota) => metrics::file_refused(FileRefusal::Quota),
            Err(FilesError::TooLarge) => metrics::file_refused(FileRefusal::TooLarge),
            Ok(_) | Err(FilesError::Store(_) | FilesError::Objects(_) | FilesError::Corrupt { .. }) => {}
        }
        put
    }

    /// Like [`Self::put`], and waits while Postgres does not answer.
    ///
    /// # Errors
    /// See [`FilesError`].
    pub async fn put_patiently(&self, tenant: TenantId, bytes: &Bytes) -> Result<BodyHash, FilesError> {
        let put = patiently(self.store.trouble(), || async {
            match self.put(tenant, bytes).await {
                Err(FilesError::Store(error)) => Err(error),
                put => Ok(put),
            }
        });
        put.await?
    }

    async fn put_body(&self, tenant: TenantId, bytes: &Bytes) -> Result<BodyHash, FilesError> {
        if bytes.len() > FilesConfig::FILE_BYTES {
            return Err(FilesError::TooLarge);
        }
        let hash: BodyHash = Sha256::digest(bytes).into();
        if self.store.keep_body(tenant, &hash).await? {
            return Ok(hash);
        }
        let new = |content| NewBody { tenant, hash, length: bytes.len() as u64, content, quota: self.quota };
        let Some(objects) = &self.objects else {
            let put = self.store.put_body(new(Content::Bytes(bytes))).await?;
            return match put {
                PutBody::Stored => {
                    metrics::file_stored(FilePlace::Postgres, bytes.len());
                    Ok(hash)
                }
                PutBody::Existing => Ok(hash),
                PutBody::OverQuota => Err(FilesError::OverQuota),
            };
        };
        let key = objects.new_key(tenant, &hex_of(&hash));
        // Noted first: an object whose body is never stored is removed by the sweep.
        self.store.note_object(&key).await?;
        objects.put(&key, bytes.clone()).await?;
        let put = self.store.put_body(new(Content::Object(&key))).await?;
        match put {
            PutBody::Stored => {
                metrics::file_stored(FilePlace::ObjectStore, bytes.len());
                Ok(hash)
            }
            PutBody::Existing => {
                self.store.drop_object(&key).await?;
                Ok(hash)
            }
            PutBody::OverQuota => {
                self.store.drop_object(&key).await?;
                Err(FilesError::OverQuota)
            }
        }
    }

    /// Reads a body; `None` if the tenant has none of that hash. The caller holds memory for it.
    ///
    /// # Errors
    /// See [`FilesError`].
    pub async fn get(&self, tenant: TenantId, hash: &BodyHash) -> Result<Option<Bytes>, FilesError> {
        let Some((place, _)) = self.store.find_body(tenant, hash).await? else { return Ok(None) };
        let bytes = match place {
            BodyPlace::Row => return Ok(self.store.read_body(tenant, hash).await?.map(Bytes::from)),
            BodyPlace::Object(key) => match &self.objects {
                Some(objects) => objects.get(&key).await?,
                None => return Err(no_objects()),
            },
        };
        if <[u8; 32]>::from(Sha256::digest(&bytes)) != *hash {
            return Err(FilesError::Corrupt { hash: hex_of(hash) });
        }
        Ok(Some(bytes))
    }

    /// Reads a body for an answer; the memory is held until the bytes are dropped.
    ///
    /// # Errors
    /// See [`FilesError`].
    pub async fn get_held(&self, tenant: TenantId, hash: &BodyHash, length: u64) -> Result<Option<Bytes>, FilesError> {
        let held = self.memory.hold(tenant, length).await;
        Ok(self.get(tenant, hash).await?.map(|bytes| Held::bytes(held, bytes)))
    }

    /// Reads a body in parts. Each part's memory is held until its bytes are dropped, so that a slow reader holds a
    /// few parts and no whole file. `None` if the tenant has none of that hash.
    ///
    /// # Errors
    /// See [`FilesError`]; the last part is [`FilesError::Corrupt`] if an object does not have the bytes that were
    /// stored.
    pub async fn parts(&self, tenant: TenantId, hash: BodyHash) -> Result<Option<Parts>, FilesError> {
        let found = self.store.find_body(tenant, &hash).await?;
        let parts = found.map(|(place, length)| Parts {
            files: self.clone(),
            tenant,
            hash,
            place,
            length,
            read: 0,
            digest: Sha256::new(),
        });
        Ok(parts)
    }

    /// Reads the file that a message names; `None` if it is gone.
    ///
    /// # Errors
    /// See [`FilesError`].
    pub async fn of_reference(&self, tenant: TenantId, file: &FileRef) -> Result<Option<Bytes>, FilesError> {
        match hash_of_hex(&file.hash) {
            Some(hash) => self.get(tenant, &hash).await,
            None => Ok(None),
        }
    }

    /// Removes expired uploads, bodies that nothing names, and objects without a body. Bounded: the next run removes
    /// the rest.
    ///
    /// # Errors
    /// Postgres is unavailable. An object that cannot be removed is logged and tried again.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        const STEPS: usize = 20;
        for _ in 0..STEPS {
            if !self.store.sweep_files().await?.has_more {
                break;
            }
        }
        let Some(objects) = &self.objects else { return Ok(()) };
        for key in self.store.leftover_objects().await? {
            match objects.delete(&key).await {
                Ok(()) => self.store.forget_object(&key).await?,
                Err(error) => {
                    tracing::warn!(error = %error, "an object of a removed file stays; trying again later");
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A body that is read in parts.
#[derive(Debug)]
pub struct Parts {
    files: Files,
    tenant: TenantId,
    hash: BodyHash,
    place: BodyPlace,
    length: u64,
    read: u64,
    digest: Sha256,
}

impl Parts {
    /// The next part; `None` after the last.
    ///
    /// # Errors
    /// See [`Files::parts`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, FilesError> {
        let bytes = PART_BYTES.min(self.length - self.read);
        if bytes == 0 {
            return Ok(None);
        }
        let held = self.files.memory.hold(self.tenant, bytes).await;
        let part = self.part(bytes).await?;
        self.read += bytes;
        self.digest.update(&part);
        let gone = || FilesError::Corrupt { hash: hex_of(&self.hash) };
        if part.len() as u64 != bytes {
            return Err(gone());
        }
        if self.read == self.length && <[u8; 32]>::from(self.digest.finalize_reset()) != self.hash {
            return Err(gone());
        }
        Ok(Some(held.bytes(part)))
    }

    async fn part(&self, bytes: u64) -> Result<Bytes, FilesError> {
        let Files { store, objects, .. } = &self.files;
        match &self.place {
            BodyPlace::Row => {
                let part = store.read_body_part(self.tenant, &self.hash, self.read, bytes).await?;
                Ok(part.unwrap_or_default().into())
            }
            BodyPlace::Object(key) => match objects {
                Some(objects) if bytes == self.length => objects.get(key).await,
                Some(objects) => objects.part(key, self.read..self.read + bytes).await,
                None => Err(no_objects()),
            },
        }
    }
}

fn no_objects() -> FilesError {
    StoreError::Conflict("a file is in an object store, and none is configured".to_owned()).into()
}

/// Parses a hash in hexadecimal.
fn hash_of_hex(text: &str) -> Option<BodyHash> {
    let mut hash = BodyHash::default();
    hex::decode_to_slice(text, &mut hash).ok().map(|()| hash)
}
