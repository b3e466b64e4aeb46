//! Redis for a test: the shared server with a key prefix of the test's own, and what the product left in it.

use futures::StreamExt;
use longhaul_domain::ExecutionId;
use longhaul_queue::QueueOptions;
use redis::{FromRedisValue, aio::PubSub};
use secrecy::SecretString;
use uuid::Uuid;

use super::{
    servers::shared_redis_url,
    wait::{SOON, eventually, within},
};

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

    pub(crate) fn options(&self) -> QueueOptions {
        QueueOptions::new(SecretString::from(self.url.clone()), &self.prefix)
    }

    /// A key or channel of this test, such as `look` or `wake:default`.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{{{}:v1}}:{name}", self.prefix)
    }

    pub(crate) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        command(&self.url, words).await
    }

    /// Wake-ups in the list of a queue, in order.
    pub(crate) async fn woken(&self, queue: &str) -> Vec<ExecutionId> {
        let list: Vec<Vec<u8>> = self.command(&["LRANGE", &self.key(&format!("wake:{queue}")), "0", "-1"]).await;
        list.iter().map(|wakeup| ExecutionId(Uuid::from_slice(wakeup).unwrap())).collect()
    }

    /// Waits until so many processes follow the looks. Looks that were published before do not reach them.
    pub(crate) async fn followed_by(&self, processes: usize) {
        // A follower subscribes to this channel last.
        let channel = self.key("text");
        eventually("the looks have their followers", SOON, async || {
            let (_, followers): (String, usize) = self.command(&["PUBSUB", "NUMSUB", &channel]).await;
            if followers == processes { Ok(()) } else { Err(followers) }
        })
        .await;
    }

    /// Hears the looks that are published from now on.
    pub(crate) async fn hear_looks(&self) -> HeardLooks {
        let mut subscription = client(&self.url).get_async_pubsub().await.unwrap();
        subscription.subscribe(self.key("look")).await.unwrap();
        HeardLooks { redis: self.clone(), subscription }
    }
}

/// Looks as the server sends them.
pub(crate) struct HeardLooks {
    redis: TestRedis,
    subscription: PubSub,
}

impl HeardLooks {
    /// Executions of the next message.
    pub(crate) async fn next(&mut self) -> Vec<ExecutionId> {
        let message = within("a look", SOON, self.subscription.on_message().next()).await.unwrap();
        let ids = message.get_payload_bytes().chunks(16);
        ids.map(|id| ExecutionId(Uuid::from_slice(id).unwrap())).collect()
    }

    /// Sorted executions of all looks that were published before.
    pub(crate) async fn so_far(&mut self) -> Vec<ExecutionId> {
        let mark = ExecutionId(Uuid::nil());
        self.redis.command::<usize>(&["PUBLISH", &self.redis.key("look"), &"\0".repeat(16)]).await;
        let mut heard = Vec::new();
        while heard.last() != Some(&mark) {
            heard.extend(self.next().await);
        }
        heard.pop();
        heard.sort_unstable();
        heard
    }
}

/// Runs one command on a server.
pub(crate) async fn command<T: FromRedisValue>(url: &str, words: &[&str]) -> T {
    let mut connection = client(url).get_multiplexed_async_connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    within("a redis command", SOON, command.query_async(&mut connection)).await.unwrap()
}

fn client(url: &str) -> redis::Client {
    redis::Client::open(url).unwrap()
}
