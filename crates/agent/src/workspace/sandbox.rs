//! Client of `POST /v1/workspace` of the sandbox (docs/guide/sandbox.md): sends the files of a workspace with a
//! command, and stores those that it left.
//!
//! Invariant: the answer is not trusted. Paths, sizes and counts are checked, and only a file that was sent may be
//! named by its hash.

use std::{collections::HashMap, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use longhaul_domain::{TenantId, cut};
use longhaul_files::{Files, FilesError, memory::FileMemory};
use longhaul_guards::http::{self, HttpOptions};
use longhaul_sdk::{Failure, FailureCode};
use longhaul_store::files::{BodyHash, WorkspaceEntry, WorkspaceNode, hex_of};
use reqwest::{Body, Client, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{
    Fault,
    tree::{MAX_FILE_BYTES, Tree},
};

/// Maximum bytes of a frame of the answer.
const MAX_FRAME: usize = 24 << 20;
/// Time of a request beyond that of its command: to wait for a slot, and to carry the files.
const TRANSFER: Duration = Duration::from_secs(120);
/// Names the tenant whose share of the sandbox a command takes.
const TENANT: &str = "longhaul-tenant";
/// Pause before a sandbox with a full line is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// Files that are read or stored at a time.
const MOVED: usize = 8;
/// Bytes of a refusal that are read.
const REFUSAL_BYTES: usize = 4_096;

/// The sandbox of a worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SandboxClient {
    http: Client,
    url: String,
    token: Option<SecretString>,
}

#[derive(Serialize)]
struct Head<'a> {
    command: &'a str,
    timeout_seconds: f64,
    entries: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    path: String,
    #[serde(flatten)]
    node: Node,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Node {
    File {
        bytes: u64,
        hash: String,
        executable: bool,
        #[serde(default)]
        sent: bool,
    },
    Link {
        target: String,
    },
    Directory,
}

/// The service's view of the run.
#[derive(Deserialize)]
struct Run {
    stdout: String,
    stderr: String,
    error: Option<RunError>,
}

#[derive(Deserialize)]
struct RunError {
    message: String,
}

/// What the command left.
#[derive(Deserialize)]
struct Left {
    exit_code: Option<i32>,
    error: Option<String>,
    entries: Vec<Entry>,
}

/// Result of a command.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// Exit status as in a shell; absent if the command exceeded its time.
    pub(super) exit_code: Option<i32>,
    /// The workspace afterwards, or the reason why it stays as it was.
    pub(super) tree: Result<Tree, String>,
}

impl SandboxClient {
    /// # Errors
    /// The HTTP client cannot be built.
    pub fn new(url: &str, token: Option<SecretString>) -> Result<Self, reqwest::Error> {
        let http = http::client(&HttpOptions { sends_once: true, ..HttpOptions::default() })?;
        Ok(Self { http, url: format!("{}/v1/workspace", url.trim_end_matches('/')), token })
    }

    /// Runs a command in the workspace `tree` for at most `time`.
    pub(super) async fn run(
        &self,
        files: &Files,
        tenant: TenantId,
        tree: &Tree,
        (command, time): (&str, Duration),
    ) -> Result<Ran, Fault> {
        let exchange = async {
            let response = self.send(files, tenant, tree, (command, time)).await?;
            let mut answer = Answer { response, buffer: BytesMut::new() };
            let run: Run = answer.json().await?;
            let Run { stdout, stderr, error } = run;
            if let Some(error) = error {
                return Ok(Ran { stdout, stderr, exit_code: None, tree: Err(error.message) });
            }
            let left: Left = answer.json().await?;
            let after = match left.error {
                Some(error) => Err(error),
                None => answer.keep(files, tenant, tree, left.entries).await?,
            };
            Ok(Ran { stdout, stderr, exit_code: left.exit_code, tree: after })
        };
        match tokio::time::timeout(time + TRANSFER, exchange).await {
            Ok(ran) => ran,
            Err(_elapsed) => Err(unreachable("does not answer")),
        }
    }

    /// Sends the request, which waits in the sandbox's line. A full line is asked again.
    async fn send(
        &self,
        files: &Files,
        tenant: TenantId,
        tree: &Tree,
        (command, time): (&str, Duration),
    ) -> Result<Response, Fault> {
        loop {
            let body = body(files, tenant, tree, (command, time));
            let mut request = self.http.post(&self.url).header(TENANT, tenant.0.to_string()).body(body);
            if let Some(token) = &self.token {
                request = request.bearer_auth(token.expose_secret());
            }
            let response = request.send().await.map_err(|error| {
                tracing::warn!(
                    error = %error, cause = ?std::error::Error::source(&error), "the sandbox cannot be asked"
                );
                unreachable("cannot be reached")
            })?;
            match response.status() {
                StatusCode::OK => return Ok(response),
                StatusCode::SERVICE_UNAVAILABLE => tokio::time::sleep(PAUSE).await,
                StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
                    return Err(Fault::Told(refusal(response).await));
                }
                status => {
                    tracing::warn!(status = status.as_u16(), "the sandbox runs no command");
                    return Err(unreachable(&format!("answers with status {}", status.as_u16())));
                }
            }
        }
    }
}

/// The reason why the sandbox refuses a command, for the model.
async fn refusal(mut response: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await
        && body.len() < REFUSAL_BYTES
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(REFUSAL_BYTES);
    let said = serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default();
    let said = said["message"].as_str().unwrap_or("it gives no reason");
    format!("the sandbox refused the command: {}", cut(said, 512))
}

/// The request: its head, then the files in order, of which a few are read ahead.
fn body(files: &Files, tenant: TenantId, tree: &Tree, (command, time): (&str, Duration)) -> Body {
    let entries: Vec<Entry> = tree.entries().map(|(path, node)| entry(path, node)).collect();
    let contents: Vec<(BodyHash, u64)> = tree
        .entries()
        .filter_map(|(_, node)| match node {
            WorkspaceNode::File { hash, bytes, .. } => Some((*hash, *bytes)),
            WorkspaceNode::Link { .. } | WorkspaceNode::Directory => None,
        })
        .collect();
    let head = serde_json::to_vec(&Head { command, timeout_seconds: time.as_secs_f64(), entries }).unwrap_or_default();
    let length = u32::try_from(head.len()).unwrap_or(u32::MAX).to_be_bytes();
    let head = [Ok(Bytes::copy_from_slice(&length)), Ok(Bytes::from(head))];
    let files = files.clone();
    let contents = stream::iter(contents).map(move |(hash, bytes)| {
        let files = files.clone();
        async move {
            match files.get_held(tenant, &hash, bytes).await {
                Ok(Some(content)) => Ok(content),
                Ok(None) => {
                    tracing::error!("the bytes of a workspace's file are gone");
                    Err(std::io::Error::other("a file of the workspace is gone"))
                }
                Err(error) => Err(std::io::Error::other(error)),
            }
        }
    });
    let contents = contents.buffered(MOVED);
    Body::wrap_stream(stream::iter(head).chain(contents))
}

fn entry(path: &str, node: &WorkspaceNode) -> Entry {
    let node = match node {
        WorkspaceNode::File { hash, bytes, is_executable } => {
            Node::File { bytes: *bytes, hash: hex_of(hash), executable: *is_executable, sent: false }
        }
        WorkspaceNode::Link { target } => Node::Link { target: target.clone() },
        WorkspaceNode::Directory => Node::Directory,
    };
    Entry { path: path.to_owned(), node }
}

fn unreachable(how: &str) -> Fault {
    Fault::Ends(Failure::of(FailureCode::TOOL_UNREACHABLE, format!("the sandbox {how}")))
}

/// An answer while it arrives.
struct Answer {
    response: Response,
    buffer: BytesMut,
}

impl Answer {
    async fn take(&mut self, length: usize) -> Result<Bytes, Fault> {
        while self.buffer.len() < length {
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) | Err(_) => return Err(unreachable("ended its answer early")),
            }
        }
        Ok(self.buffer.split_to(length).freeze())
    }

    async fn json<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T, Fault> {
        let mut length = [0; 4];
        length.copy_from_slice(&self.take(4).await?);
        let length = u32::from_be_bytes(length) as usize;
        if length > MAX_FRAME {
            return Err(unreachable("answers too much"));
        }
        serde_json::from_slice(&self.take(length).await?).map_err(|_| unreachable("answers what cannot be read"))
    }

    /// Stores the files that were sent back; the tree of all entries, or the reason why there is none.
    async fn keep(
        self,
        files: &Files,
        tenant: TenantId,
        before: &Tree,
        entries: Vec<Entry>,
    ) -> Result<Result<Tree, String>, Fault> {
        let known: HashMap<String, (BodyHash, u64)> = before
            .entries()
            .filter_map(|(_, node)| match node {
                WorkspaceNode::File { hash, bytes, .. } => Some((hex_of(hash), (*hash, *bytes))),
                WorkspaceNode::Link { .. } | WorkspaceNode::Directory => None,
            })
            .collect();
        // Checked before the first byte is stored, with the announced sizes.
        if let Err(refused) = before.with(entries.iter().map(announced).collect()) {
            return Ok(Err(refused));
        }
        let read = (self, known, files.memory().clone(), entries.into_iter());
        let nodes = stream::unfold(read, |(mut answer, known, memory, mut entries)| async move {
            let Entry { path, node } = entries.next()?;
            let content = answer.content(&known, (&memory, tenant), node).await;
            Some((content.map(|content| (path, content)), (answer, known, memory, entries)))
        });
        let stored = nodes
            .map(|read| async {
                let (path, content) = read?;
                let node = match content {
                    Content::Node(node) => node,
                    Content::New(bytes, is_executable) => {
                        let hash = store(files, tenant, &bytes).await?;
                        WorkspaceNode::File { hash, bytes: bytes.len() as u64, is_executable }
                    }
                };
                Ok::<_, Fault>(WorkspaceEntry { path, node })
            })
            .buffered(MOVED);
        Ok(before.with(stored.try_collect().await?))
    }

    async fn content(
        &mut self,
        known: &HashMap<String, (BodyHash, u64)>,
        (memory, tenant): (&FileMemory, TenantId),
        node: Node,
    ) -> Result<Content, Fault> {
        Ok(match node {
            Node::File { bytes, executable, sent: true, .. } => {
                let length = usize::try_from(bytes.min(MAX_FILE_BYTES)).unwrap_or_default();
                // Held before it is read, until it is stored.
                let held = memory.hold(tenant, bytes).await;
                Content::New(held.bytes(self.take(length).await?), executable)
            }
            Node::File { hash, executable, .. } => {
                let (hash, bytes) = *known.get(&hash).ok_or_else(|| unreachable("names a file that nobody sent"))?;
                Content::Node(WorkspaceNode::File { hash, bytes, is_executable: executable })
            }
            Node::Link { target } => Content::Node(WorkspaceNode::Link { target }),
            Node::Directory => Content::Node(WorkspaceNode::Directory),
        })
    }
}

enum Content {
    Node(WorkspaceNode),
    New(Bytes, bool),
}

/// The entry with its announced size and a hash of zeros: enough to check the limits before a file is stored.
fn announced(entry: &Entry) -> WorkspaceEntry {
    let node = match &entry.node {
        Node::File { bytes, .. } => WorkspaceNode::File { hash: [0; 32], bytes: *bytes, is_executable: false },
        Node::Link { target } => WorkspaceNode::Link { target: target.clone() },
        Node::Directory => WorkspaceNode::Directory,
    };
    WorkspaceEntry { path: entry.path.clone(), node }
}

/// Stores the bytes of a file.
///
/// # Errors
/// The quota is used up, or the store fails.
pub(super) async fn store(files: &Files, tenant: TenantId, bytes: &Bytes) -> Result<BodyHash, Fault> {
    match files.put_patiently(tenant, bytes).await {
        Ok(hash) => Ok(hash),
        Err(error @ (FilesError::OverQuota | FilesError::TooLarge)) => Err(Fault::Told(error.to_string())),
        Err(FilesError::Store(error)) => Err(Fault::of_store(error)),
        Err(error @ (FilesError::Objects(_) | FilesError::Corrupt { .. })) => Err(Fault::of_files(&error)),
    }
}
