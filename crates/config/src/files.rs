//! `[files]`: uploads and artifacts.

use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{Rules, units};

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FilesConfig {
    /// Time for which an upload is kept.
    #[serde(rename = "upload_seconds", with = "units::seconds")]
    pub upload: Duration,
    /// Most bytes of all files of one tenant.
    pub tenant_bytes: u64,
    /// Most bytes of the files in one request to a model.
    pub request_bytes: u64,
    /// Most bytes of memory that one process uses for files at a time.
    pub memory_bytes: u64,
    pub s3: S3Config,
}

/// The S3-compatible store of the files' bytes.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct S3Config {
    /// `None`: the bytes are in Postgres.
    #[serde(with = "units::text")]
    pub bucket: Option<String>,
    /// `None`: AWS.
    #[serde(with = "units::url_or_nothing")]
    pub endpoint: Option<String>,
    pub region: String,
    /// `None`: the machine's own role.
    #[serde(with = "units::text")]
    pub access_key_id: Option<String>,
    #[serde(with = "units::secret")]
    pub secret_access_key: Option<SecretString>,
    /// First part of every object's key.
    pub prefix: String,
}

impl FilesConfig {
    /// Largest file, in bytes.
    pub const FILE_BYTES: usize = 20 * 1024 * 1024;
    /// Memory for one byte of a file in a request to a model: the byte, and its base64 text in two copies of which one
    /// may have grown to twice its size.
    pub const MEMORY_PER_BYTE: u64 = 5;

    pub(super) fn check(&self, rules: &mut Rules) {
        rules.positive("files.upload_seconds", self.upload);
        let file = Self::FILE_BYTES as u64;
        rules.require(self.tenant_bytes >= file, "files.tenant_bytes must be at least 20971520, the size of one file");
        rules
            .require(self.request_bytes >= file, "files.request_bytes must be at least 20971520, the size of one file");
        rules.require(
            self.memory_bytes >= self.request_bytes.saturating_mul(Self::MEMORY_PER_BYTE),
            "files.memory_bytes must be at least 5 times files.request_bytes",
        );
        let has_secret = self.s3.secret_access_key.is_some();
        rules.require(
            self.s3.access_key_id.is_some() == has_secret,
            "files.s3.access_key_id and files.s3.secret_access_key must be set together",
        );
        if let Some(endpoint) = &self.s3.endpoint {
            let is_url = url::Url::parse(endpoint).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
            rules.require(is_url, "files.s3.endpoint must be an http or https URL");
        }
    }
}
