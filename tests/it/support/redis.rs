//! Redis for a test: the shared server with a key prefix of the test's own.

use super::servers::shared_redis_url;

/// The shared server and a prefix that no other test uses. Keys are left behind: the server ends with the process.
#[derive(Debug, Clone)]
pub(crate) struct TestRedis {
    /// URL of the server, `redis://…`.
    pub(crate) url: String,
    /// Prefix of every key of this test.
    pub(crate) prefix: String,
}

impl TestRedis {
    pub(crate) async fn create() -> Self {
        // Starting a server blocks.
        let url = tokio::task::spawn_blocking(shared_redis_url).await.expect("start the shared Redis");
        Self { url: url.to_owned(), prefix: format!("t{}", uuid::Uuid::new_v4().simple()) }
    }
}
