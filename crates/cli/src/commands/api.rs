//! `longhaul api`: the API role.

use std::net::SocketAddr;

use anyhow::Context as _;
use longhaul_api::ApiOptions;
use longhaul_command::{Exit, context::flag, signals};
use longhaul_config::Config;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::compose;

/// Serve the API, its documentation and the page
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs DATABASE_URL, REDIS_URL and LONGHAUL_API_KEY_PEPPER (32 characters or more, the same in every process).
SIGTERM or Ctrl-C finishes open requests and stops; a second one stops at once.

Examples:
  longhaul api
  longhaul api --listen 0.0.0.0:8080")]
pub struct ApiArgs {
    /// Address and port to listen on; 127.0.0.1:8080 unless configured
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
}

impl ApiArgs {
    #[must_use]
    pub fn flags(&self) -> Vec<(String, String)> {
        flag("api.listen", self.listen).into_iter().collect()
    }
}

/// Serves the API until a signal.
///
/// # Errors
/// A setting is missing, or the address is in use.
pub async fn run(config: Config) -> anyhow::Result<Exit> {
    let shutdown = CancellationToken::new();
    let store = compose::store(&config, "longhaul-api")?;
    let listener = TcpListener::bind(config.api.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.api.listen))?;
    tracing::info!(server.address = %listener.local_addr()?, "the api listens on {}", listener.local_addr()?);
    let options = ApiOptions {
        max_streams: config.api.streams_max,
        secure_cookies: config.api.secure_cookies,
        ..ApiOptions::default()
    };
    let served = Box::pin(compose::serve_api(&config, store.clone(), options, listener, shutdown.clone()));
    let exit = signals::with_shutdown(shutdown, async {
        served.await?;
        Ok(Exit::Done)
    })
    .await;
    tracing::info!("the api has stopped");
    exit
}
