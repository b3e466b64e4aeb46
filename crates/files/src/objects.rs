//! An S3-compatible store. Every body has an object of its own, whose key is never used again: the removal of a body
//! cannot meet a later upload of the same bytes.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use longhaul_config as config;
use longhaul_config::S3Config;
use longhaul_domain::TenantId;
use longhaul_guards::http::{self, HttpOptions};
use object_store::{
    ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig,
    aws::AmazonS3Builder,
    client::{HttpClient, HttpConnector},
    path::Path,
};
use secrecy::ExposeSecret;
use uuid::Uuid;

use super::FilesError;

/// Longest wait for a connection to the object store.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest silence within an answer of the object store.
const SILENCE: Duration = Duration::from_secs(30);
/// Retries of one request within this time; afterwards the execution is retried.
const RETRIES: usize = 3;
const RETRY_TIME: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: String,
}

/// Uses the product's HTTP client, with its TLS provider and timeouts.
#[derive(Debug)]
struct OwnClient;

impl HttpConnector for OwnClient {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let options = HttpOptions { connect_timeout: CONNECT, read_timeout: Some(SILENCE), ..HttpOptions::default() };
        let client = http::client(&options)
            .map_err(|source| object_store::Error::Generic { store: "S3", source: Box::new(source) })?;
        Ok(HttpClient::new(client))
    }
}

impl Objects {
    /// `None` if no bucket is configured.
    ///
    /// # Errors
    /// The settings are unusable.
    pub(crate) fn of_config(config: &S3Config) -> Result<Option<Self>, FilesError> {
        let Some(bucket) = &config.bucket else { return Ok(None) };
        let retries = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIME, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(&config.region)
            .with_retry(retries)
            // Not every compatible store has the request that deletes many, and one at a time is enough.
            .with_disable_bulk_delete(true)
            .with_http_connector(OwnClient);
        if let Some(endpoint) = &config.endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        if let Some((id, secret)) = config.access_key_id.as_ref().zip(config.secret_access_key.as_ref()) {
            let secret = config::reveal(secret).map_err(|error| {
                FilesError::Objects(object_store::Error::Generic { store: "S3", source: Box::new(error) })
            })?;
            builder = builder.with_access_key_id(id).with_secret_access_key(secret.expose_secret());
        }
        let store = builder.build().map_err(FilesError::Objects)?;
        Ok(Some(Self { store: Arc::new(store), prefix: config.prefix.trim_matches('/').to_owned() }))
    }

    /// A key that no object has.
    pub(crate) fn new_key(&self, tenant: TenantId, hash: &str) -> String {
        let key = format!("{}/{hash}/{}", tenant.0.simple(), Uuid::new_v4().simple());
        if self.prefix.is_empty() { key } else { format!("{}/{key}", self.prefix) }
    }

    pub(crate) async fn put(&self, key: &str, bytes: Bytes) -> Result<(), FilesError> {
        self.store.put(&Path::from(key), bytes.into()).await.map(drop).map_err(FilesError::Objects)
    }

    pub(crate) async fn get(&self, key: &str) -> Result<Bytes, FilesError> {
        let found = self.store.get(&Path::from(key)).await.map_err(FilesError::Objects)?;
        found.bytes().await.map_err(FilesError::Objects)
    }

    pub(crate) async fn part(&self, key: &str, range: Range<u64>) -> Result<Bytes, FilesError> {
        self.store.get_range(&Path::from(key), range).await.map_err(FilesError::Objects)
    }

    /// Removes an object; one that is gone already counts as removed.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), FilesError> {
        match self.store.delete(&Path::from(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(FilesError::Objects(error)),
        }
    }
}
