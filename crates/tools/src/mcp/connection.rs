//! One connection to a tool server: transport, handshake, child process and secrets.
//!
//! Dropping a connection ends it: the child's standard input is closed, then the child is signalled, then
//! killed.

use std::{
    collections::{HashMap, VecDeque},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use longhaul_domain::cut;
use longhaul_guards::address_guard::{GuardedResolver, check_host};
use longhaul_sdk::spec::McpServerSpec;
use parking_lot::Mutex;
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
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::Command,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    pool_settings::{AllowedNetworks, McpPoolSettings},
    secret::Secrets,
    session::{SessionClient, said},
};
use crate::http::mcp_client;

/// Environment variables of this process that a child inherits. All others come from the agent.
pub const INHERITED_ENV: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Bytes of a child's standard error that are logged. The rest is read and discarded, so that the child never blocks.
const MAX_STDERR_BYTES: usize = 64 * 1024;
/// Bytes of one logged line.
const MAX_STDERR_LINE: usize = 1_024;
/// Last lines of a child's standard error that a failure tells, and their bytes.
const MAX_LAST_LINES: usize = 10;
const MAX_LAST_BYTES: usize = 800;
/// Time limit for the last words of a program whose handshake failed.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Bytes of one server message over HTTP. rmcp has the same limit for a line of standard output.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// A connection after its handshake.
pub(super) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    pub(super) secrets: Secrets,
    stderr: Option<AbortOnDropHandle<()>>,
    last_words: LastWords,
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
        last_words: &LastWords,
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
            last_words.hide(secrets.clone());
            let (transport, stderr) = child(name, spec, env, settings, last_words.clone())?;
            (client().serve(transport).await, stderr)
        };
        match (service, stderr) {
            (Ok(service), stderr) => Ok(Self { service, secrets, stderr, last_words: last_words.clone() }),
            (Err(error), stderr) => {
                // The last words of a program arrive after the end of its standard output.
                if let Some(stderr) = stderr {
                    let _ = tokio::time::timeout(LAST_WORDS, stderr).await;
                }
                Err(handshake_error(&secrets, &error))
            }
        }
    }

    pub(super) fn peer(&self) -> &rmcp::Peer<RoleClient> {
        self.service.peer()
    }

    /// The last lines that a program wrote to its standard error; empty of a server over HTTP. Waits a moment for those
    /// of a program that is ending.
    pub(super) async fn last_words(&self) -> String {
        if self.stderr.is_some() {
            let _ = tokio::time::timeout(LAST_WORDS, self.last_words.ended.cancelled()).await;
        }
        self.last_words.told()
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
    last_words: LastWords,
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
    let stderr = stderr.map(|pipe| AbortOnDropHandle::new(tokio::spawn(log_stderr(name.to_owned(), pipe, last_words))));
    Ok((transport, stderr))
}

/// Reads a child's standard error to its end, so that the child never blocks. The first part is logged, the last lines
/// are kept.
async fn log_stderr(server: String, pipe: impl AsyncRead + Unpin, last_words: LastWords) {
    let mut reader = BufReader::new(pipe);
    let (mut line, mut logged) = (Vec::new(), 0);
    let mut end_line = |line: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        if logged < MAX_STDERR_BYTES {
            logged += line.len();
            tracing::debug!(tool.server = server, "tool server: {text}");
        }
        last_words.add(text);
        line.clear();
    };
    while let Ok(chunk) = reader.fill_buf().await
        && !chunk.is_empty()
    {
        let read = chunk.len();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_STDERR_LINE.saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                end_line(&mut line);
            }
        }
        reader.consume(read);
    }
    if !line.is_empty() {
        end_line(&mut line);
    }
    last_words.ended.cancel();
}

/// The last lines that a program wrote to its standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct LastWords {
    words: Arc<Mutex<Words>>,
    /// Cancelled when nothing more comes.
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct Words {
    lines: VecDeque<String>,
    secrets: Secrets,
}

impl LastWords {
    fn hide(&self, secrets: Secrets) {
        self.words.lock().secrets = secrets;
    }

    fn add(&self, line: String) {
        if line.trim().is_empty() {
            return;
        }
        let mut words = self.words.lock();
        if words.lines.len() == MAX_LAST_LINES {
            words.lines.pop_front();
        }
        words.lines.push_back(line);
    }

    /// The last lines as the end of a sentence, without secrets; empty if there are none.
    pub(super) fn told(&self) -> String {
        let words = self.words.lock();
        // The newest lines say why: they stay when there is no room for all.
        let mut kept: Vec<&str> = Vec::new();
        let mut bytes = 0;
        for line in words.lines.iter().rev() {
            bytes += line.len();
            if bytes > MAX_LAST_BYTES && !kept.is_empty() {
                break;
            }
            kept.push(line);
        }
        kept.reverse();
        if kept.is_empty() {
            return String::new();
        }
        let text = words.secrets.scrub(kept.join(" | "));
        format!("; its last words: {}", cut(&text, MAX_LAST_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn stderr_beyond_the_limit_is_discarded() {
        let noise = tokio::io::repeat(b'x').take(8 * MAX_STDERR_BYTES as u64);
        let words = LastWords::default();
        log_stderr("noisy".into(), noise, words.clone()).await;
        assert!(words.told().len() <= MAX_LAST_BYTES + 30, "{}", words.told().len());
    }

    #[tokio::test]
    async fn last_lines_are_told_without_secrets() {
        let words = LastWords::default();
        words.hide(Secrets::of(Some(SecretString::from("hunter2hunter2"))));
        let said: String = (0..40).map(|n| format!("line {n}\n\n")).collect();
        let said = format!("{said}key hunter2hunter2\nModuleNotFoundError: no module\n");
        log_stderr("s".into(), std::io::Cursor::new(said), words.clone()).await;
        let told = words.told();
        assert!(told.ends_with("ModuleNotFoundError: no module") && told.contains("line 39"), "{told}");
        assert!(!told.contains("line 31 ") && !told.contains("hunter2"), "{told}");
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
