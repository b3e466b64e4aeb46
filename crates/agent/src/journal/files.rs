//! The files of a request: read when it is built, and in memory until it was sent.
//!
//! The transcript names bytes by their hash, so a resumed turn sends the same. A process holds at most
//! `files.memory_bytes` for them, and one request at most `files.request_bytes`: more is a failure of the execution.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use longhaul_config::FilesConfig;
use longhaul_domain::message::FileRef;
use longhaul_files::{FilesError, memory::Held};
use longhaul_llm::{RequestFiles, health::Route};
use longhaul_sdk::{Failure, FailureCode, Step};
use longhaul_store::{StoreError, database::retry::patiently};

use super::{Journal, from_store};

impl Journal {
    /// Reads the files of the transcript that the route's model takes.
    ///
    /// # Errors
    /// `files_too_large`, `file_missing` or `file_store_unavailable`; the store refuses.
    pub(super) async fn load_files(&self, route: &Route) -> Step<Arc<RequestFiles>> {
        let messages = self.transcript.messages.all().to_vec();
        let mut wanted: BTreeMap<&str, &FileRef> = BTreeMap::new();
        for file in messages.iter().flat_map(|message| message.files()) {
            if RequestFiles::takes(&route.spec, file) {
                wanted.insert(&file.hash, file);
            }
        }
        if wanted.is_empty() {
            return Ok(Arc::default());
        }
        let files = &self.writer.deps.files;
        let total = wanted.values().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
        if total > files.request_bytes() {
            let max = files.request_bytes();
            let summary = format!("the files of the conversation have {total} bytes, and one request may have {max}");
            return Err(Failure::permanent(FailureCode::FILES_TOO_LARGE, summary).into());
        }
        let held =
            files.memory().hold(self.writer.scope.tenant, total.saturating_mul(FilesConfig::MEMORY_PER_BYTE)).await;
        let mut bytes = BTreeMap::new();
        for (hash, file) in wanted {
            bytes.insert(hash.to_owned(), self.load_file(file).await?);
        }
        // The memory returns with the bytes.
        if let Some(first) = bytes.first_entry() {
            let first = first.into_mut();
            *first = Held::bytes(held, std::mem::take(first));
        }
        Ok(Arc::new(RequestFiles::new(bytes)))
    }

    async fn load_file(&self, file: &FileRef) -> Step<Bytes> {
        let (files, tenant) = (&self.writer.deps.files, self.writer.scope.tenant);
        let read = patiently(self.writer.deps.store.trouble(), || async {
            match files.of_reference(tenant, file).await {
                Err(FilesError::Store(error)) => Err(error),
                read => Ok(read),
            }
        });
        let source = |error: &FilesError| std::error::Error::source(error).map(ToString::to_string);
        let named = || file.name_or("without a name");
        match read.await {
            Ok(Ok(Some(bytes))) => Ok(bytes),
            Ok(Ok(None)) => {
                let summary = format!("the file {} of the conversation is gone", named());
                Err(Failure::permanent(FailureCode::FILE_MISSING, summary).into())
            }
            Ok(Err(error)) if error.is_transient() => {
                let (id, cause) = (self.writer.id, source(&error));
                tracing::warn!(execution.id = %id, file.hash = file.hash, error = %error, cause, "file not read");
                let summary = format!("the file {} cannot be read: the file store does not answer", named());
                Err(Failure::of(FailureCode::FILE_STORE_UNAVAILABLE, summary).into())
            }
            Ok(Err(error)) => {
                let (id, cause) = (self.writer.id, source(&error));
                tracing::error!(execution.id = %id, file.hash = file.hash, error = %error, cause, "file not read");
                let summary = format!("the bytes of the file {} are gone or changed", named());
                Err(Failure::permanent(FailureCode::FILE_MISSING, summary).into())
            }
            Err(StoreError::Conflict(reason)) => Err(Failure::permanent(FailureCode::FILE_MISSING, reason).into()),
            Err(error) => Err(from_store(error)),
        }
    }
}
