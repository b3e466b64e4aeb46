//! A private PostgreSQL with its own cluster directory.
//!
//! It listens on 127.0.0.1 only and requires a random password, because every user of the machine can dial its
//! loopback. `fsync` and `full_page_writes` keep their defaults.

use std::ffi::OsString;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::binaries::postgres_installs;
use crate::cluster::{Cluster, NAME, OWNER};
use crate::error::ServersError;
use crate::guard::{Launch, StopSignal};
use crate::port::free_port;
use crate::preflight::{Host, preflight};
use crate::server_dir::{Keep, ServerDir};
use crate::supervised::{PrivateServer, Probe};

/// Start attempts: another process can take the free port before the server binds it.
const PORT_ATTEMPTS: usize = 5;

/// Authentication method of `pg_hba.conf`.
const SCRAM: &str = "scram-sha-256";

/// Options of a private PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    dir: PathBuf,
    keep: Keep,
    settings: Vec<(&'static str, String)>,
    auth: &'static str,
}

impl PostgresOptions {
    /// For `longhaul dev`: the first start creates the cluster in `dir`, later starts reuse it.
    #[must_use]
    pub fn dev(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), keep: Keep::Kept, settings: Vec::new(), auth: SCRAM }
            .with("max_connections", "200")
            .with("shared_buffers", "256MB")
    }

    /// For tests: a new cluster in a temporary directory, removed with its owner. As durable as any other.
    #[must_use]
    pub fn scratch() -> Self {
        Self::scratch_in(&std::env::temp_dir(), SCRAM)
    }

    /// As [`Self::scratch`], for thousands of connections: in a directory below `base`, and with MD5 passwords. SCRAM
    /// hashes 4,096 times for each connection, and a random password needs no such delay.
    #[must_use]
    pub fn scratch_of_many_connections(base: &Path) -> Self {
        Self::scratch_in(base, "md5")
    }

    fn scratch_in(base: &Path, auth: &'static str) -> Self {
        let dir = base.join(format!("longhaul-postgres-{}", uuid::Uuid::new_v4().simple()));
        Self { dir, keep: Keep::Removed, settings: Vec::new(), auth }
            .with("max_connections", "300")
            .with("shared_buffers", "128MB")
    }

    /// Adds a server setting, passed as `-c name=value`. A later setting replaces an earlier one of the same name.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.settings.push((name, value.into()));
        self
    }
}

/// A running private PostgreSQL, stopped when dropped.
#[derive(Debug)]
pub struct PrivatePostgres {
    server: PrivateServer,
    url: String,
    cluster: Arc<Cluster>,
}

impl PrivatePostgres {
    /// Creates the cluster if the directory is new, starts the server and waits until it accepts connections.
    ///
    /// # Errors
    ///
    /// The binaries are missing, the directory is in use or owned by another user, or the server does not start.
    pub async fn start(options: PostgresOptions) -> Result<Self, ServersError> {
        let started = tokio::task::spawn_blocking(move || Self::start_blocking(&options)).await;
        started.unwrap_or(Err(ServersError::Cancelled { server: NAME }))
    }

    /// [`PrivatePostgres::start`] for a caller without a runtime. Blocks for about two seconds on a new directory.
    ///
    /// # Errors
    ///
    /// As for [`PrivatePostgres::start`].
    pub fn start_blocking(options: &PostgresOptions) -> Result<Self, ServersError> {
        let installs = postgres_installs();
        if installs.is_empty() {
            preflight(&Host { postgres: false, redis: true, ..Host::detect() })?;
        }
        let server_dir = ServerDir::prepare(&options.dir, options.keep)?;
        Self::serve(options, Cluster::open(server_dir, &installs, options.auth)?)
    }

    fn serve(options: &PostgresOptions, cluster: Cluster) -> Result<Self, ServersError> {
        let mut attempts = 1;
        loop {
            let port = free_port().map_err(ServersError::io("find a free port"))?;
            let launch = launch(options, &cluster, port);
            let probe = Probe::PostmasterFile(cluster.pid_file());
            match PrivateServer::launch(launch, cluster.server_dir.clone(), probe, port) {
                Ok(server) => {
                    let url = format!("postgres://{OWNER}:{}@127.0.0.1:{port}/{OWNER}", cluster.password);
                    return Ok(Self { server, url, cluster: Arc::new(cluster) });
                }
                Err(ServersError::DidNotStart { tail, .. })
                    if attempts < PORT_ATTEMPTS && tail.contains("Address already in use") =>
                {
                    attempts += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts a hot standby from a base backup of this server, in a new directory. Its `max_connections` must not be
    /// smaller than those of this server, whose `synchronous_standby_names` decide if commits wait for it.
    ///
    /// # Errors
    ///
    /// This server does not run, the directory is in use, or the standby does not start.
    pub async fn standby(&self, options: PostgresOptions) -> Result<Self, ServersError> {
        let (primary, port) = (Arc::clone(&self.cluster), self.address().port());
        let started = tokio::task::spawn_blocking(move || {
            let server_dir = ServerDir::prepare(&options.dir, options.keep)?;
            Self::serve(&options, primary.copy_for_standby(server_dir, port)?)
        });
        started.await.unwrap_or(Err(ServersError::Cancelled { server: NAME }))
    }

    /// Makes a standby a primary, and waits until it is one. Its former primary must have been stopped.
    ///
    /// # Errors
    ///
    /// The server does not run, is no standby, or is none that can be promoted in time.
    pub async fn promote(&self) -> Result<(), ServersError> {
        let cluster = Arc::clone(&self.cluster);
        let promoted = tokio::task::spawn_blocking(move || cluster.promote()).await;
        promoted.unwrap_or(Err(ServersError::Cancelled { server: NAME }))
    }

    /// Directory of the installation's programs, such as `pg_dump`.
    #[must_use]
    pub fn programs(&self) -> &Path {
        &self.cluster.bin
    }

    /// `postgres://user:password@127.0.0.1:port/database`. Only the port differs between starts in the same
    /// directory.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Deref for PrivatePostgres {
    type Target = PrivateServer;

    fn deref(&self) -> &PrivateServer {
        &self.server
    }
}

fn launch(options: &PostgresOptions, cluster: &Cluster, port: u16) -> Launch {
    let mut args: Vec<OsString> = vec!["-D".into(), cluster.data.clone().into_os_string()];
    let port = port.to_string();
    let fixed = [
        ("listen_addresses", "127.0.0.1"),
        ("port", port.as_str()),
        // A deep checkout exceeds the length limit of a socket path; all clients use loopback.
        ("unix_socket_directories", ""),
        ("timezone", "UTC"),
        ("log_timezone", "UTC"),
    ];
    let chosen = options.settings.iter().map(|(name, value)| (*name, value.as_str()));
    for (name, value) in fixed.into_iter().chain(chosen) {
        args.push("-c".into());
        args.push(format!("{name}={value}").into());
    }
    Launch {
        server: NAME,
        program: cluster.bin.join("postgres"),
        args,
        env: None,
        dir: cluster.server_dir.dir.clone(),
        log: cluster.server_dir.dir.join("server.log"),
        account: cluster.server_dir.account,
        stop: StopSignal::Interrupt,
        scratch: cluster.server_dir.scratch(),
    }
}
