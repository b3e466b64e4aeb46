//! What an agent does with a browser's page.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use longhaul_domain::cut;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use crate::{browser::Browser, error::BrowserError, facts::PageState, launch::VIEW};

const SCRIPT: &str = include_str!("page.js");
/// World of the script. The page's own code cannot reach it.
const WORLD: &str = "longhaul";
/// Maximum characters, interactive elements and nodes of a page that are read, and the time to read it.
const MAX_CHARS: usize = 400_000;
const MAX_ELEMENTS: usize = 1_000;
const MAX_NODES: usize = 200_000;
const READ: Duration = Duration::from_secs(4);
/// Time for a click to begin a navigation.
const TO_BEGIN: Duration = Duration::from_millis(300);
/// Time for a page to stop loading, or to answer for its screenshot.
const TO_STOP: Duration = Duration::from_secs(2);
/// Attempts to run the script, each in the document that is there by then.
const TRIES: usize = 3;
/// Maximum bytes of a URL.
const MAX_URL: usize = 4_096;
/// Maximum bytes of a screenshot.
const MAX_PICTURE: usize = 8 << 20;
/// Room in a result for its first lines and its last.
const AROUND: usize = 600;

/// An element of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Its number in the page's text, from 1.
    Number(u32),
    /// The first element that a CSS selector matches.
    Selector(String),
}

/// A text for an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed {
    pub text: String,
    /// Presses Enter after it.
    pub submit: bool,
}

/// A picture of the visible part of the page, and the text of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Screenshot {
    pub png: Vec<u8>,
    pub text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Navigated {
    error_text: Option<String>,
    /// Absent if the document stays.
    loader_id: Option<String>,
    #[serde(default)]
    is_download: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct World {
    execution_context_id: u64,
}

#[derive(Deserialize)]
struct Evaluated {
    result: Evaluation,
}

#[derive(Deserialize)]
struct Evaluation {
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
struct Page {
    url: String,
    title: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageText {
    url: String,
    title: String,
    text: String,
    is_cut: bool,
}

#[derive(Deserialize)]
struct Point {
    x: f64,
    y: f64,
}

#[derive(Deserialize)]
struct Prepared {
    typing: Typing,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Typing {
    /// The element is focused and waits for keys.
    Keys,
    /// The script has set the element.
    Done,
}

#[derive(Deserialize)]
struct Captured {
    data: String,
}

impl Browser {
    /// Goes to a URL and waits for it to load.
    ///
    /// # Errors
    /// See [`BrowserError`].
    pub async fn navigate(&mut self, url: &str) -> Result<String, BrowserError> {
        let url = checked(url)?;
        self.has_page = true;
        let (before, deadline) = (self.state(), Instant::now() + self.config.load);
        let going = self.devtools.page::<Navigated>("Page.navigate", json!({ "url": url.as_str() }));
        let Ok(navigated) = timeout_at(deadline, going).await else {
            let stopped = self.devtools.page::<Value>("Page.stopLoading", json!({}));
            if timeout(TO_STOP, stopped).await.is_err() {
                self.facts.end("the page did not react");
                return Err(BrowserError::Gone("the page did not react".into()));
            }
            let seconds = self.config.load.as_secs();
            return Err(self.refused(&format!("the server did not answer within {seconds} s")));
        };
        let navigated = navigated?;
        if navigated.is_download {
            return Err(self.refused("the URL is a download, not a page"));
        }
        if let Some(error) = navigated.error_text {
            return Err(self.refused(&format!("the page cannot be opened: {error}")));
        }
        let loaded = navigated.loader_id.is_none() || self.until(deadline, |page| page.loaded > before.loaded).await;
        self.finish(if loaded { "The page is open." } else { "The page is open and still loads." }).await
    }

    /// The page's text from character `from`, with its interactive elements numbered.
    ///
    /// # Errors
    /// See [`BrowserError`].
    pub async fn read(&mut self, from: usize, max_bytes: usize) -> Result<String, BrowserError> {
        self.needs_page()?;
        let request = json!({
            "action": "read", "maxChars": MAX_CHARS, "maxElements": MAX_ELEMENTS, "maxNodes": MAX_NODES,
            "maxMillis": u64::try_from(READ.as_millis()).unwrap_or(u64::MAX),
        });
        let PageText { url, title, text, is_cut } = self.script(request).await?;
        self.check_place(&url).await?;
        let notes = self.notes();
        let room = max_bytes.saturating_sub(AROUND + url.len() + title.len() + notes.len());
        let total = text.chars().count();
        let rest: String = text.chars().skip(from).collect();
        let mut end = room.min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let part = &rest[..end];
        let until = from.min(total) + part.chars().count();
        let mut told = format!("Page: {title} <{url}>{notes}\n\n{part}");
        if until < total || from > 0 {
            let more = if until < total { format!("; read on with `from`: {until}") } else { String::new() };
            told.push_str(&format!("\n[characters {from} to {until} of {total}{more}]"));
        }
        if is_cut && until >= total {
            told.push_str("\n[the page is longer than what can be read of it]");
        }
        Ok(told)
    }

    /// Clicks an element with the mouse.
    ///
    /// # Errors
    /// See [`BrowserError`].
    pub async fn click(&mut self, target: &Target) -> Result<String, BrowserError> {
        self.needs_page()?;
        let Point { x, y } = self.script(request("point", target)).await?;
        let before = self.state();
        for (kind, buttons) in [("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)] {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 });
            let _: Value = self.devtools.page("Input.dispatchMouseEvent", event).await?;
        }
        self.settle(&before).await;
        self.finish("Clicked.").await
    }

    /// Replaces the text of an element.
    ///
    /// # Errors
    /// See [`BrowserError`].
    pub async fn type_text(&mut self, target: &Target, typed: &Typed) -> Result<String, BrowserError> {
        self.needs_page()?;
        let mut asked = request("prepare", target);
        asked["text"] = typed.text.as_str().into();
        let Prepared { typing } = self.script(asked).await?;
        let before = self.state();
        match typing {
            Typing::Done => {}
            // Deletes what is selected.
            Typing::Keys if typed.text.is_empty() => self.press("Backspace", 8, None).await?,
            Typing::Keys => {
                let _: Value = self.devtools.page("Input.insertText", json!({ "text": typed.text })).await?;
            }
        }
        if typed.submit {
            self.press("Enter", 13, Some("\r")).await?;
            self.settle(&before).await;
        }
        self.finish(if typed.submit { "Typed, and pressed Enter." } else { "Typed." }).await
    }

    /// Takes a picture of the visible part of the page.
    ///
    /// # Errors
    /// See [`BrowserError`].
    pub async fn screenshot(&mut self) -> Result<Screenshot, BrowserError> {
        self.needs_page()?;
        let (width, height) = VIEW;
        let text = self.finish(&format!("A picture of {width} × {height} pixels.")).await?;
        let Captured { data } = self.devtools.page("Page.captureScreenshot", json!({ "format": "png" })).await?;
        let png = BASE64_STANDARD.decode(data).map_err(|_| BrowserError::refused("the picture cannot be read"))?;
        if png.len() > MAX_PICTURE {
            return Err(BrowserError::Refused(format!("the picture has more than {MAX_PICTURE} bytes")));
        }
        Ok(Screenshot { png, text })
    }

    async fn press(&self, key: &str, code: u32, text: Option<&str>) -> Result<(), BrowserError> {
        let mut down = json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code });
        let mut up = down.clone();
        if let Some(text) = text {
            down["text"] = text.into();
        }
        up["type"] = "keyUp".into();
        for event in [down, up] {
            let _: Value = self.devtools.page("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    fn needs_page(&self) -> Result<(), BrowserError> {
        if self.has_page { Ok(()) } else { Err(BrowserError::refused("no page is open; call browser_navigate first")) }
    }

    fn state(&self) -> PageState {
        self.facts.page().borrow().clone()
    }

    /// Waits until the page's state is as wanted, or the browser is gone. Returns false after `deadline`.
    async fn until(&self, deadline: Instant, wanted: impl Fn(&PageState) -> bool) -> bool {
        let mut page = self.facts.page();
        let changed = page.wait_for(|page| page.gone.is_some() || wanted(page));
        timeout_at(deadline, changed).await.is_ok()
    }

    /// Waits for the page that a click or key may have begun to load.
    async fn settle(&self, before: &PageState) {
        if self.until(Instant::now() + TO_BEGIN, |page| page.begun > before.begun).await {
            self.until(Instant::now() + self.config.load, |page| page.loaded > before.loaded).await;
        }
    }

    /// The text of a result: what was done, where the page is, and what happened meanwhile.
    async fn finish(&mut self, done: &str) -> Result<String, BrowserError> {
        let Page { url, title } = self.script(json!({ "action": "page" })).await?;
        self.check_place(&url).await?;
        Ok(format!("{done}\nPage: {title} <{url}>{}", self.notes()))
    }

    /// Leaves a page that no agent may be at. Chromium keeps pages of the web from going there.
    async fn check_place(&mut self, url: &str) -> Result<(), BrowserError> {
        let permitted = ["http://", "https://", "about:", "blob:http", "chrome-error:"];
        if permitted.iter().any(|scheme| url.starts_with(scheme)) {
            return Ok(());
        }
        let _: Value = self.devtools.page("Page.navigate", json!({ "url": "about:blank" })).await?;
        Err(BrowserError::refused("the page went to a URL that is not http or https, and was closed"))
    }

    fn notes(&self) -> String {
        self.facts.take_notes().into_iter().map(|note| format!("\n[{note}]")).collect()
    }

    fn refused(&self, message: &str) -> BrowserError {
        BrowserError::Refused(format!("{message}{}", self.notes()))
    }

    /// Runs the script in its own world of the page that is there.
    async fn script<R: DeserializeOwned>(&self, request: Value) -> Result<R, BrowserError> {
        let mut tries = 1;
        let answer = loop {
            match self.evaluate(&request).await {
                // The document was replaced meanwhile.
                Err(BrowserError::Refused(_)) if tries < TRIES => tries += 1,
                answer => break answer?,
            }
        };
        let mut answer: Value = serde_json::from_str(&answer).map_err(|_| unreadable())?;
        if let Some(Value::String(refused)) = answer.get_mut("error").map(Value::take) {
            return Err(self.refused(&refused));
        }
        serde_json::from_value(answer).map_err(|_| unreadable())
    }

    async fn evaluate(&self, request: &Value) -> Result<String, BrowserError> {
        let world = json!({ "frameId": self.devtools.frame(), "worldName": WORLD });
        let World { execution_context_id } = self.devtools.page("Page.createIsolatedWorld", world).await?;
        // JSON is an expression of JavaScript.
        let evaluate = json!({
            "expression": format!("({SCRIPT})({request})"), "contextId": execution_context_id,
            "returnByValue": true, "silent": true,
        });
        let Evaluated { result } = self.devtools.page("Runtime.evaluate", evaluate).await?;
        match result.value {
            Value::String(text) => Ok(text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Err(unreadable()),
        }
    }
}

fn unreadable() -> BrowserError {
    BrowserError::refused("the page cannot be read")
}

fn request(action: &str, target: &Target) -> Value {
    match target {
        Target::Number(number) => json!({ "action": action, "number": number }),
        Target::Selector(selector) => json!({ "action": action, "selector": selector }),
    }
}

/// The URL, if an agent may go there.
fn checked(url: &str) -> Result<Url, BrowserError> {
    if url.len() > MAX_URL {
        return Err(BrowserError::Refused(format!("a URL may have at most {MAX_URL} bytes")));
    }
    let url =
        Url::parse(url).map_err(|error| BrowserError::Refused(format!("`url` is not an absolute URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        let scheme = cut(url.scheme(), 64);
        return Err(BrowserError::Refused(format!("only http and https URLs can be opened, not `{scheme}`")));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BrowserError::refused("a URL with a user name or password cannot be opened"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_schemes_and_credentials_are_refused() {
        for url in [
            "file:///etc/passwd",
            "data:text/html,x",
            "chrome://version",
            "javascript:alert(1)",
            "view-source:http://h/",
            "about:blank",
            "blob:http://h/1",
            "http://u:p@h/",
            "example.org",
        ] {
            assert!(checked(url).is_err(), "{url}");
        }
        assert!(checked("https://example.org/a?b#c").is_ok());
        assert!(checked(&format!("https://example.org/{}", "x".repeat(MAX_URL))).is_err());
    }
}
