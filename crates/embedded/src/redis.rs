//! A private Redis without persistence: it carries only wake-ups, which are republished from the database.

use std::ffi::OsString;
use std::ops::Deref;
use std::path::PathBuf;

use crate::binaries::redis_server;
use crate::error::ServersError;
use crate::guard::{Launch, StopSignal};
use crate::port::free_port;
use crate::preflight::{Host, preflight};
use crate::server_dir::{Keep, ServerDir};
use crate::supervised::{PrivateServer, Probe};

const NAME: &str = "Redis";
/// Start attempts: another process can take the free port before the server binds it.
const PORT_ATTEMPTS: usize = 5;

/// Options of a private Redis.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    dir: PathBuf,
    keep: Keep,
}

impl RedisOptions {
    /// For `longhaul dev`: `dir` holds the configuration and the log.
    #[must_use]
    pub fn dev(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), keep: Keep::Kept }
    }

    /// For tests: a temporary directory, removed with its owner.
    #[must_use]
    pub fn scratch() -> Self {
        let dir = std::env::temp_dir().join(format!("longhaul-redis-{}", uuid::Uuid::new_v4().simple()));
        Self { dir, keep: Keep::Removed }
    }
}

/// A running private Redis, stopped when dropped. A stop loses its data.
#[derive(Debug)]
pub struct PrivateRedis {
    server: PrivateServer,
    url: String,
}

impl PrivateRedis {
    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    ///
    /// The binary is missing, the directory cannot be used, or the server does not start.
    pub async fn start(options: RedisOptions) -> Result<Self, ServersError> {
        let started = tokio::task::spawn_blocking(move || Self::start_blocking(&options)).await;
        started.unwrap_or(Err(ServersError::Cancelled { server: NAME }))
    }

    /// [`PrivateRedis::start`] for a caller without a runtime.
    ///
    /// # Errors
    ///
    /// As for [`PrivateRedis::start`].
    pub fn start_blocking(options: &RedisOptions) -> Result<Self, ServersError> {
        let Some(program) = redis_server() else {
            preflight(&Host { postgres: true, redis: false, ..Host::detect() })?;
            return Err(ServersError::NotRunning { server: NAME });
        };
        let server_dir = ServerDir::prepare(&options.dir, options.keep)?;
        let password = uuid::Uuid::new_v4().simple().to_string();
        let mut attempts = 1;
        loop {
            let port = free_port().map_err(ServersError::io("find a free port"))?;
            // The password goes into a file, because every user of the machine can read a command line.
            let config = server_dir.write_private("redis.conf", &config(port, &password))?;
            let launch = Launch {
                server: NAME,
                program: program.clone(),
                args: vec![OsString::from(config)],
                env: None,
                dir: server_dir.dir.clone(),
                log: server_dir.dir.join("server.log"),
                account: server_dir.account,
                stop: StopSignal::Terminate,
                scratch: server_dir.scratch(),
            };
            let probe = Probe::RedisPing { port, password: password.clone() };
            match PrivateServer::launch(launch, server_dir.clone(), probe, port) {
                Ok(server) => return Ok(Self { server, url: format!("redis://:{password}@127.0.0.1:{port}/") }),
                Err(ServersError::DidNotStart { tail, .. })
                    if attempts < PORT_ATTEMPTS && tail.contains("Address already in use") =>
                {
                    attempts += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// `redis://:password@127.0.0.1:port/`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Deref for PrivateRedis {
    type Target = PrivateServer;

    fn deref(&self) -> &PrivateServer {
        &self.server
    }
}

fn config(port: u16, password: &str) -> String {
    format!(
        "bind 127.0.0.1\nport {port}\nprotected-mode yes\nrequirepass {password}\ndaemonize no\nsave \"\"\nappendonly \
         no\n\
         maxclients 4096\n"
    )
}
