//! One connection to a tool server: transport, handshake, child process and secrets.
//!
//! Dropping a connection ends it: the child's standard input is closed, then the child is signalled, then
//! killed.

use std::{collections::HashMap, process::Stdio, time::Duration};

use longhaul_sdk::spec::McpServerSpec;
use longhaul_shared::{
    address_guard::{GuardedResolver, check_host},
    domain::cut,
};
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::{
    RoleClient, ServiceExt,
    model::{ClientCapabilities, ClientConfig, Implementation},
    service::{ClientInitializeError, RunningService},
    transport::{
        StreamableHttpClientTransport, TokioChildProcess, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    process::Command,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    pool_settings::{AllowedNetworks, McpPoolSettings},
    secret::Secrets,
    session::{SessionClient, said},
};
use crate::http::mcp_client;

/// Environment variables of this process that a child inherits. All others come from the agent.
pub const INHERITED_ENV: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Bytes of a child's standard error that are logged. The rest is read and discarded, so that the child never blocks.
const MAX_STDERR_BYTES: u64 = 64 * 1024;
/// Bytes of one logged line.
const MAX_STDERR_LINE: usize = 1_024;
/// Bytes of one server message over HTTP. rmcp has the same limit for a line of standard output.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// A connection after its handshake.
pub(super) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    pub(super) secrets: Secrets,
    _stderr: Option<AbortOnDropHandle<()>>,
}

impl Connection {
    /// Connects and performs the handshake. The caller applies the timeout.
    ///
    /// # Errors
    /// A message without secrets.
    pub(super) async fn open(
        name: &str,
        spec: &McpServerSpec,
        reach: AllowedNetworks,
        settings: &McpPoolSettings,
    ) -> Result<Self, String> {
        let mut secrets = Secrets::default();
        let (service, stderr) = if let Some(url) = &spec.url {
            if !reach.may_be_private {
                check_host(url).await?;
            }
            let headers = secrets.resolve_all(&spec.headers, &settings.secrets)?;
            let transport = http_transport(url, headers, reach)?;
            (client().serve(transport).await, None)
        } else {
            let env = secrets.resolve_all(&spec.env, &settings.secrets)?;
            let (transport, stderr) = child(name, spec, env, settings)?;
            (client().serve(transport).await, stderr)
        };
        match service {
            Ok(service) => Ok(Self { service, secrets, _stderr: stderr }),
            Err(error) => Err(handshake_error(&secrets, &error)),
        }
    }

    pub(super) fn peer(&self) -> &rmcp::Peer<RoleClient> {
        self.service.peer()
    }

    /// Returns true if the other side is known to be gone.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Ends the session and waits up to `wait` for the child to exit.
    pub(super) async fn close(mut self, wait: Duration) {
        let _ = self.service.close_with_timeout(wait).await;
    }
}

fn client() -> ClientConfig {
    ClientConfig::new(ClientCapabilities::default(), Implementation::new("longhaul", env!("CARGO_PKG_VERSION")))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "not exhaustive outside rmcp; the rest says itself what it is")]
fn handshake_error(secrets: &Secrets, error: &ClientInitializeError) -> String {
    let reason = match error {
        ClientInitializeError::TransportError { error, .. } => said(error),
        ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
            "the server answered something else than an initialisation".into()
        }
        other => other.to_string(),
    };
    cut(&secrets.scrub(format!("the handshake failed: {reason}")), 500).into_owned()
}

fn http_transport(
    url: &str,
    headers: Vec<(String, SecretString)>,
    reach: AllowedNetworks,
) -> Result<StreamableHttpClientTransport<SessionClient>, String> {
    let headers = headers
        .into_iter()
        .map(|(key, value)| {
            let key = HeaderName::try_from(key.as_str()).map_err(|_| format!("`{key}` is not a header name"))?;
            let mut value = HeaderValue::try_from(value.expose_secret())
                .map_err(|_| format!("the value of header `{key}` holds characters no header can"))?;
            value.set_sensitive(true);
            Ok((key, value))
        })
        .collect::<Result<HashMap<_, _>, String>>()?;
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers)
        .max_sse_event_size(MAX_MESSAGE_BYTES);
    // Check addresses on every connection: the name may resolve to another address by now, or for the next call.
    let resolver = GuardedResolver { allow_private: reach.may_be_private };
    Ok(StreamableHttpClientTransport::with_client(SessionClient(mcp_client(resolver)?), config))
}

fn child(
    name: &str,
    spec: &McpServerSpec,
    env: Vec<(String, SecretString)>,
    settings: &McpPoolSettings,
) -> Result<(TokioChildProcess, Option<AbortOnDropHandle<()>>), String> {
    let (program, args) = spec.command.split_first().ok_or("it has no command")?;
    let mut command = Command::new(program);
    command.args(args).env_clear().kill_on_drop(true);
    command.envs(settings.base_env.iter().filter(|(key, _)| INHERITED_ENV.contains(&key.as_str())));
    command.envs(env.iter().map(|(key, value)| (key, value.expose_secret())));
    let (transport, stderr) = TokioChildProcess::builder(command)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("`{program}` could not be started: {error}"))?;
    let stderr = stderr.map(|pipe| AbortOnDropHandle::new(tokio::spawn(log_stderr(name.to_owned(), pipe))));
    Ok((transport, stderr))
}

/// Logs a child's standard error up to a limit, and reads on so that the child never blocks.
async fn log_stderr(server: String, pipe: impl AsyncRead + Unpin) {
    let mut reader = BufReader::new(pipe);
    let mut limited = (&mut reader).take(MAX_STDERR_BYTES);
    let mut line = Vec::new();
    while matches!(limited.read_until(b'\n', &mut line).await, Ok(1..)) {
        let text = String::from_utf8_lossy(&line);
        tracing::debug!(tool.server = server, "tool server: {}", cut(text.trim_end(), MAX_STDERR_LINE));
        line.clear();
    }
    let _ = tokio::io::copy_buf(&mut reader, &mut tokio::io::sink()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stderr_beyond_the_limit_is_discarded() {
        let noise = tokio::io::repeat(b'x').take(8 * MAX_STDERR_BYTES);
        log_stderr("noisy".into(), noise).await;
    }

    #[test]
    fn invalid_header_error_does_not_show_value() {
        let error = http_transport(
            "http://h/",
            vec![("x-key".into(), SecretString::from("se\ncret"))],
            AllowedNetworks::default(),
        )
        .err()
        .unwrap();
        assert!(error.contains("x-key") && !error.contains("cret`"), "{error}");
    }
}
