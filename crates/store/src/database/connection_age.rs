//! Ages at which connections are no longer used as they are.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::{Connection, PgConnection};
use tokio::time::timeout;

/// Idle time after which a connection is pinged before use. Under load a ping would be one more round trip per
/// statement; a connection that has just broken is found by the statement, and a caller that must not fail
/// repeats it.
const ASK_AFTER_IDLE: Duration = Duration::from_millis(100);
/// Longest wait for the ping's answer. A host that died answers none, and other connections are to be tried.
const PING_LIMIT: Duration = Duration::from_secs(1);
/// Age from which a connection is closed instead of used: the server's memory for it grows.
pub(crate) const MAX_LIFETIME: Duration = Duration::from_secs(30 * 60);

/// Time at which a statement was last refused because of its connection. One for the whole process, because the
/// error is recognised where the pool is not known; for a second pool it costs a reconnect.
static DISTRUSTED: Mutex<Option<Instant>> = Mutex::new(None);

/// Gives up every connection that is open now, such as those to a demoted primary (core-rules 20).
pub(crate) fn distrust_connections() {
    *DISTRUSTED.lock() = Some(Instant::now());
}

/// Returns true if a connection of this age was open when a statement was refused.
fn is_distrusted(age: Duration) -> bool {
    let refused_at = *DISTRUSTED.lock();
    refused_at.is_some_and(|at| at.elapsed() <= age)
}

/// Returns true if a connection opened `age` ago, and last used `idle_for` ago, may be used once more.
pub(crate) async fn is_usable(connection: &mut PgConnection, age: Duration, idle_for: Duration) -> bool {
    if age >= MAX_LIFETIME || is_distrusted(age) {
        return false;
    }
    idle_for <= ASK_AFTER_IDLE || matches!(timeout(PING_LIMIT, connection.ping()).await, Ok(Ok(())))
}

/// Returns true if a connection opened `age` ago may go back to the pool. It answers after the statement that a dropped
/// caller left on it, `limit` at most; but the one to a host that died never does, and the pool of `sqlx`, which asks
/// without a limit, would not get its place back.
pub(crate) async fn comes_back(connection: &mut PgConnection, age: Duration, limit: Duration) -> bool {
    !is_distrusted(age) && matches!(timeout(limit, connection.ping()).await, Ok(Ok(())))
}
