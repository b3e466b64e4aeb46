//! The `DevTools` protocol over the browser's pipes: JSON messages that end with NUL.
//!
//! Written here because the crate that speaks it on tokio fails under `arbitrary_precision`, and bounds no message
//! (docs/design/workspace.md). A message that is too long ends the browser.

use std::{
    collections::HashMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{ChildStdin, ChildStdout},
    sync::{mpsc, oneshot},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{error::BrowserError, facts::Facts};

/// Maximum bytes of a message: a screenshot of noise has about 6 MiB.
const MAX_MESSAGE: usize = 16 << 20;
/// Commands that wait to be written.
const MAX_COMMANDS: usize = 32;
const ENDED: &str = "the browser ended unexpectedly";

/// Senders of the answers that commands wait for, by the commands' ids.
type Answers = HashMap<u64, oneshot::Sender<Result<Box<RawValue>, String>>>;

/// The connection to a browser.
#[derive(Debug)]
pub(crate) struct DevTools {
    shared: Arc<Shared>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

#[derive(Debug)]
struct Shared {
    commands: mpsc::Sender<Vec<u8>>,
    waiting: Mutex<Answers>,
    next: AtomicU64,
    page: OnceLock<PageIds>,
    facts: Arc<Facts>,
}

/// The browser's one page.
#[derive(Debug)]
struct PageIds {
    session: String,
    /// Id of the page's target and of its main frame.
    frame: String,
}

#[derive(Serialize)]
struct Outgoing<'a> {
    id: u64,
    method: &'a str,
    params: Value,
    #[serde(rename = "sessionId", skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

#[derive(Deserialize)]
struct Incoming<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    method: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

/// Members of the events that are read. All others are ignored.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EventParams {
    frame_id: String,
    message: String,
    url: String,
    #[serde(rename = "type")]
    kind: String,
}

impl DevTools {
    pub(crate) fn new(commands: ChildStdin, messages: ChildStdout, facts: Arc<Facts>) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_COMMANDS);
        let shared = Arc::new(Shared {
            commands: sender,
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            page: OnceLock::new(),
            facts,
        });
        let reading = tokio::spawn(read(messages, shared.clone()));
        let tasks = [tokio::spawn(write(commands, receiver)), reading].map(AbortOnDropHandle::new);
        Self { shared, _tasks: tasks }
    }

    /// Attaches to a new page, which is the browser's only one.
    pub(crate) async fn open_page(&self) -> Result<(), BrowserError> {
        // A context of its own keeps cookies, caches and storage in memory.
        let context: Value = self.browser("Target.createBrowserContext", json!({ "disposeOnDetach": true })).await?;
        let context = &context["browserContextId"];
        let deny = json!({ "behavior": "deny", "browserContextId": context });
        let _: Value = self.browser("Browser.setDownloadBehavior", deny).await?;
        let page = json!({ "url": "about:blank", "browserContextId": context });
        let target: Value = self.browser("Target.createTarget", page).await?;
        let frame = target["targetId"].as_str().unwrap_or_default().to_owned();
        let attach = json!({ "targetId": frame, "flatten": true });
        let attached: Value = self.browser("Target.attachToTarget", attach).await?;
        let session = attached["sessionId"].as_str().unwrap_or_default().to_owned();
        let _ = self.shared.page.set(PageIds { session, frame });
        let _: Value = self.page("Page.enable", json!({})).await?;
        let cancel = json!({ "enabled": true, "cancel": true });
        let _: Value = self.page("Page.setInterceptFileChooserDialog", cancel).await?;
        Ok(())
    }

    /// Sends a command to the browser itself.
    pub(crate) async fn browser<R: DeserializeOwned>(&self, method: &str, params: Value) -> Result<R, BrowserError> {
        self.shared.send(method, params, None).await
    }

    /// Sends a command to the page. Dropping the future leaves the command running.
    pub(crate) async fn page<R: DeserializeOwned>(&self, method: &str, params: Value) -> Result<R, BrowserError> {
        let session = self.shared.page.get().map(|page| page.session.as_str());
        self.shared.send(method, params, session).await
    }

    /// Id of the page's main frame.
    pub(crate) fn frame(&self) -> &str {
        self.shared.page.get().map_or("", |page| page.frame.as_str())
    }
}

impl Shared {
    async fn send<R: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
        session: Option<&str>,
    ) -> Result<R, BrowserError> {
        let gone = || BrowserError::Gone(self.facts.gone().unwrap_or_else(|| ENDED.to_owned()));
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().insert(id, sender);
        let _waiting = Waiting { answers: &self.waiting, id };
        if self.commands.send(message(id, method, params, session)).await.is_err() || self.facts.gone().is_some() {
            return Err(gone());
        }
        match answer.await {
            Ok(Ok(result)) => serde_json::from_str(result.get())
                .map_err(|error| BrowserError::Refused(format!("the browser answered {method} unusually: {error}"))),
            Ok(Err(refusal)) => Err(BrowserError::Refused(refusal)),
            Err(_) => Err(gone()),
        }
    }

    fn on_message(&self, bytes: &[u8]) {
        // What cannot be read is of no command of ours.
        let Ok(incoming) = serde_json::from_slice::<Incoming<'_>>(bytes) else { return };
        if let Some(id) = incoming.id {
            let Some(waiting) = self.waiting.lock().remove(&id) else { return };
            let answer = match (incoming.error, incoming.result) {
                (Some(refusal), _) => Err(refusal.message),
                (None, Some(result)) => Ok(result.to_owned()),
                (None, None) => Err("the browser answered nothing".to_owned()),
            };
            let _ = waiting.send(answer);
        } else if let (Some(method), Some(params)) = (incoming.method, incoming.params) {
            self.on_event(&method, params);
        }
    }

    fn on_event(&self, method: &str, params: &RawValue) {
        let read = || serde_json::from_str::<EventParams>(params.get()).unwrap_or_default();
        let is_main = |params: &EventParams| self.page.get().is_some_and(|page| page.frame == params.frame_id);
        match method {
            "Page.frameStartedNavigating" if is_main(&read()) => self.facts.begun(),
            // Of the main frame only.
            "Page.loadEventFired" => self.facts.loaded(),
            "Page.javascriptDialogOpening" => self.dismiss(&read()),
            "Page.windowOpen" => {
                let url = read().url;
                self.facts.note(&format!("the page wanted to open a new window, which was not opened: {url}"));
            }
            "Page.downloadWillBegin" => self.facts.note(&format!("a download was refused: {}", read().url)),
            "Inspector.targetCrashed" => self.facts.end("the page crashed"),
            "Inspector.detached" | "Target.detachedFromTarget" => self.facts.end("the page closed itself"),
            _ => {}
        }
    }

    fn dismiss(&self, dialog: &EventParams) {
        // Otherwise a page could not be left.
        let accept = dialog.kind == "beforeunload";
        if !accept {
            let (kind, message) = (&dialog.kind, &dialog.message);
            self.facts.note(&format!("the page showed a dialog ({kind}), which was dismissed: {message}"));
        }
        let (id, session) = (self.next.fetch_add(1, Ordering::Relaxed), self.page.get().map(|page| &*page.session));
        let command = message(id, "Page.handleJavaScriptDialog", json!({ "accept": accept }), session);
        // If so many commands wait, the browser reads none, and the call ends at its time limit.
        let _ = self.commands.try_send(command);
    }
}

fn message(id: u64, method: &str, params: Value, session: Option<&str>) -> Vec<u8> {
    // Strings, numbers and JSON: serialization cannot fail.
    let mut bytes = serde_json::to_vec(&Outgoing { id, method, params, session }).unwrap_or_default();
    bytes.push(0);
    bytes
}

/// A command without an answer; dropped, nothing waits for it any more.
struct Waiting<'a> {
    answers: &'a Mutex<Answers>,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.answers.lock().remove(&self.id);
    }
}

async fn write(mut to: ChildStdin, mut commands: mpsc::Receiver<Vec<u8>>) {
    while let Some(command) = commands.recv().await {
        if to.write_all(&command).await.is_err() {
            return;
        }
    }
}

/// Reads messages until the browser ends or sends one that is too long.
async fn read(from: ChildStdout, shared: Arc<Shared>) {
    let mut from = BufReader::with_capacity(64 << 10, from);
    let mut message = Vec::new();
    let reason = loop {
        let block = match from.fill_buf().await {
            Ok([]) | Err(_) => break ENDED,
            Ok(block) => block,
        };
        let (part, is_end) = match block.iter().position(|byte| *byte == 0) {
            Some(end) => (&block[..end], true),
            None => (block, false),
        };
        if message.len() + part.len() > MAX_MESSAGE {
            break "the browser sent more than it may in one message";
        }
        message.extend_from_slice(part);
        let used = part.len() + usize::from(is_end);
        from.consume(used);
        if is_end {
            shared.on_message(&message);
            message.clear();
            message.shrink_to(64 << 10);
        }
    };
    shared.facts.end(reason);
    shared.waiting.lock().clear();
}
