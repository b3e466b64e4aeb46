//! The browser of an attempt: started by its first navigation, gone with it (docs/design/workspace.md).
//!
//! Invariants:
//! - The calls of an attempt run one after the other, in the order in which they start.
//! - A model that was told of a page is told when that page is gone: after a resume, in a later message of a session,
//!   and when the browser was closed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use longhaul_browser::{Browser, BrowserError, Browsers, Screenshot, Slot, Target, Transfer, Typed};
use longhaul_domain::{CallError, CallErrorKind, TenantId};
use longhaul_sdk::{ToolEffect, ToolFile};
use longhaul_tools::{BrowserTool, CallOutcome, Toolbox};
use serde::Deserialize;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::{Instant, timeout},
};

use crate::ready_call::ReadyCall;

const NEW: &str = "Your browser is new. The one of your earlier calls is gone, with its page, cookies and logins";

/// The browser of an attempt, if it uses one.
#[derive(Debug)]
pub(crate) struct AttemptBrowser {
    browsers: Option<Browsers>,
    tenant: TenantId,
    /// True if the model has seen results of a browser that is not this attempt's, and was not told so yet.
    has_earlier: AtomicBool,
    /// Held by the call that runs.
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    browser: Option<Browser>,
    /// What all browsers of the attempt transfer.
    transfer: Option<Arc<Transfer>>,
    screenshots: u32,
}

/// The right of one call to use the browser.
#[derive(Debug)]
pub(crate) struct BrowserTurn<'a> {
    browsers: Option<Browsers>,
    held: MutexGuard<'a, Held>,
    /// Text about a browser that was lost since the last call; empty if there is none.
    notice: String,
    /// For a call that starts a browser.
    slot: Option<Result<Slot, BrowserError>>,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(default)]
    url: String,
    #[serde(default)]
    from: usize,
    element: Option<u32>,
    selector: Option<String>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    submit: bool,
}

/// Result of a call.
struct Done {
    text: String,
    picture: Option<Vec<u8>>,
}

impl AttemptBrowser {
    pub(crate) fn new(browsers: Option<Browsers>, tenant: TenantId) -> Self {
        Self { browsers, tenant, has_earlier: AtomicBool::new(false), held: Mutex::default() }
    }

    /// Notes a call before this attempt, by the name of its tool.
    pub(crate) fn note_earlier(&self, tool: Option<&str>) {
        if tool.and_then(BrowserTool::named).is_some() {
            self.has_earlier.store(true, Ordering::Relaxed);
        }
    }

    /// Waits for the calls that were started before, and for a place if the call starts a browser. Neither counts as
    /// time of the call.
    pub(crate) async fn turn(&self, tool: BrowserTool) -> BrowserTurn<'_> {
        let mut held = self.held.lock().await;
        let notice = held.notice(self.has_earlier.swap(false, Ordering::Relaxed));
        let slot = match &self.browsers {
            Some(browsers) if tool == BrowserTool::Navigate && held.browser.is_none() => {
                Some(browsers.slot(self.tenant).await)
            }
            Some(_) | None => None,
        };
        BrowserTurn { browsers: self.browsers.clone(), held, notice, slot }
    }
}

impl Held {
    fn notice(&mut self, has_earlier: bool) -> String {
        let lost = self.browser.as_ref().and_then(Browser::gone);
        if lost.is_some() {
            self.browser = None;
        }
        match (lost, has_earlier) {
            (Some(reason), _) => format!("{NEW}: {reason}.\n\n"),
            (None, true) => format!("{NEW}.\n\n"),
            (None, false) => String::new(),
        }
    }

    async fn open(&mut self, browsers: &Browsers, slot: Result<Slot, BrowserError>) -> Result<(), BrowserError> {
        let transfer = self.transfer.get_or_insert_with(|| Transfer::new(browsers.config().transfer_bytes));
        self.browser = Some(browsers.open(transfer, slot?).await?);
        Ok(())
    }
}

/// Runs one call in its turn.
pub(crate) async fn call(
    mut turn: BrowserTurn<'_>,
    (toolbox, tool): (&Toolbox, BrowserTool),
    ready: &ReadyCall,
) -> CallOutcome {
    let started = Instant::now();
    let notice = std::mem::take(&mut turn.notice);
    let said = |message: String| notice + &message;
    let outcome = match turn.answer(toolbox, tool, ready).await {
        Ok(Done { text, picture }) => {
            let outcome = toolbox.answer(tool.name(), said(text));
            let files = picture.into_iter().map(|bytes| {
                turn.held.screenshots += 1;
                let name = format!("screenshot-{}.png", turn.held.screenshots);
                ToolFile { name, media_type: "image/png".into(), bytes }
            });
            CallOutcome { files: files.collect(), ..outcome }
        }
        Err(error) => {
            let error = CallError::new(error.kind, said(error.message));
            toolbox.fail(&error, tool.name(), &ready.written.arguments)
        }
    };
    CallOutcome { duration: started.elapsed(), ..outcome }
}

impl BrowserTurn<'_> {
    async fn answer(&mut self, toolbox: &Toolbox, tool: BrowserTool, ready: &ReadyCall) -> Result<Done, CallError> {
        let runtime = |message: String| CallError::new(CallErrorKind::Runtime, message);
        let Some(browsers) = self.browsers.take() else {
            return Err(runtime("this worker has no browser".into()));
        };
        let arguments = Arguments::deserialize(&ready.arguments).map_err(|error| runtime(error.to_string()))?;
        let limit = toolbox.timeout(tool.name()).min(browsers.config().call);
        let has_effect = match toolbox.effect(tool.name()) {
            ToolEffect::SideEffect => true,
            ToolEffect::ReadOnly | ToolEffect::Idempotent => false,
        };
        if let Some(slot) = self.slot.take() {
            let opened = self.held.open(&browsers, slot).await;
            opened.map_err(|error| runtime(error.to_string()))?;
        }
        match timeout(limit, self.run(tool, arguments, toolbox.max_result_bytes())).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(BrowserError::Refused(message))) => Err(runtime(message)),
            Ok(Err(BrowserError::Gone(reason))) => {
                self.held.browser = None;
                let kind = if has_effect { CallErrorKind::OutcomeUnknown } else { CallErrorKind::Runtime };
                Err(CallError::new(kind, format!("the browser was closed, with its cookies and logins: {reason}")))
            }
            Err(_elapsed) => {
                // A page that does not react would hold every later call, too.
                self.held.browser = None;
                let (seconds, effect) =
                    (limit.as_secs(), if has_effect { "; the call may still have taken effect" } else { "" });
                let message = format!(
                    "the page did not react within {seconds} s, and the browser was closed, with its cookies and \
                     logins{effect}"
                );
                Err(CallError::new(CallErrorKind::Timeout, message))
            }
        }
    }

    async fn run(&mut self, tool: BrowserTool, arguments: Arguments, max_bytes: usize) -> Result<Done, BrowserError> {
        let Some(browser) = &mut self.held.browser else {
            return Err(BrowserError::Refused("no page is open; call browser_navigate first".into()));
        };
        let _in_use = browser.in_use();
        let Arguments { url, from, element, selector, text, submit } = arguments;
        let target = || match (element, selector) {
            (Some(number), None) => Ok(Target::Number(number)),
            (None, Some(selector)) => Ok(Target::Selector(selector)),
            (None, None) | (Some(_), Some(_)) => {
                Err(BrowserError::Refused("name one of `element` and `selector`".into()))
            }
        };
        let (text, picture) = match tool {
            BrowserTool::Navigate => (browser.navigate(&url).await?, None),
            BrowserTool::Read => (browser.read(from, max_bytes).await?, None),
            BrowserTool::Click => (browser.click(&target()?).await?, None),
            BrowserTool::Type => (browser.type_text(&target()?, &Typed { text, submit }).await?, None),
            BrowserTool::Screenshot => {
                let Screenshot { png, text } = browser.screenshot().await?;
                (text, Some(png))
            }
        };
        Ok(Done { text, picture })
    }
}
