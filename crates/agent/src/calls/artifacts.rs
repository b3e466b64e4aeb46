//! Keeps the files that calls leave: their bytes first, then the row that names them, under the attempt's lease. The
//! call's step follows with the files in its message.

use std::sync::Arc;

use bytes::Bytes;
use longhaul_domain::{ExecutionId, FileId, LeaseToken, TenantId, WorkerId, message::FileRef};
use longhaul_files::{FilesError, media_type};
use longhaul_sdk::ToolFile;
use longhaul_store::{
    StoreError,
    database::retry::patiently,
    files::{Kept, MAX_ARTIFACTS, NewArtifact, hex_of},
    history::journal::Hash,
};
use longhaul_tools::CallOutcome;

use crate::{deps::AgentDeps, journal::Writer, messages::hash_parts};

/// Keeps the artifacts of one attempt.
#[derive(Debug, Clone)]
pub(crate) struct ArtifactKeeper {
    deps: Arc<AgentDeps>,
    pub(crate) tenant: TenantId,
    lease: (WorkerId, ExecutionId, LeaseToken),
}

impl ArtifactKeeper {
    /// A keeper under the lease of `writer`.
    pub(crate) fn of(writer: &Writer) -> Self {
        Self { deps: writer.deps.clone(), tenant: writer.scope.tenant, lease: writer.held_lease() }
    }

    pub(crate) fn execution(&self) -> ExecutionId {
        self.lease.1
    }

    /// Keeps the files of a call's result. The model is told of a file that cannot be kept. After the loss of the
    /// lease nothing is kept: the result is not recorded either.
    pub(crate) async fn keep(&self, call: &Hash, outcome: &mut CallOutcome) {
        let (mut kept, mut refused) = (Vec::new(), Vec::new());
        for (index, file) in std::mem::take(&mut outcome.files).into_iter().enumerate() {
            let shown = (file.name.clone(), file.media_type.clone(), file.bytes.len());
            match self.store(call, index, file).await {
                Ok(artifact) => kept.push(artifact),
                Err(reason) => refused.push((shown, reason)),
            }
        }
        if !kept.is_empty() {
            let refusal = match self.name(call, &kept).await {
                Ok(Kept::All) => None,
                Ok(Kept::TooMany) => Some(format!("the execution has {MAX_ARTIFACTS} files already")),
                Err(error) => {
                    tracing::debug!(execution.id = %self.execution(), error = %error, "files of a call not kept");
                    Some("the file store failed".to_owned())
                }
            };
            for artifact in kept {
                match &refusal {
                    None => outcome.kept.push(reference(&artifact)),
                    Some(reason) => {
                        let shown = (artifact.name, artifact.media_type, artifact.length as usize);
                        refused.push((shown, reason.clone()));
                    }
                }
            }
        }
        for ((name, media_type, bytes), reason) in refused {
            outcome.text.push_str(&format!("\n[file {name}, {media_type}, {bytes} bytes: not kept, because {reason}]"));
        }
    }

    async fn store(&self, call: &Hash, index: usize, file: ToolFile) -> Result<NewArtifact, String> {
        let bytes = Bytes::from(file.bytes);
        let _held = self.deps.files.memory().hold(self.tenant, bytes.len() as u64).await;
        let hash = match self.deps.files.put_patiently(self.tenant, &bytes).await {
            Ok(hash) => hash,
            Err(error @ (FilesError::OverQuota | FilesError::TooLarge)) => return Err(error.to_string()),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(execution.id = %self.execution(), error = %error, cause, "file of a call not kept");
                return Err("the file store failed".into());
            }
        };
        let id = FileId::derived(&hash_parts(&[b"artifact", call, &index.to_be_bytes(), &hash]));
        let media_type = media_type::of_artifact(&bytes, &file.media_type);
        let name = media_type::safe_name(&file.name);
        Ok(NewArtifact { id, hash, length: bytes.len() as u64, media_type, name })
    }

    async fn name(&self, call: &Hash, artifacts: &[NewArtifact]) -> Result<Kept, StoreError> {
        let store = &self.deps.store;
        patiently(store.trouble(), || store.keep_artifacts(self.lease, call, artifacts)).await
    }
}

fn reference(artifact: &NewArtifact) -> FileRef {
    FileRef {
        hash: hex_of(&artifact.hash),
        media_type: artifact.media_type.clone(),
        bytes: artifact.length,
        id: Some(artifact.id),
        name: Some(artifact.name.clone()),
    }
}
