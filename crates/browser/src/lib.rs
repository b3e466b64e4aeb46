//! A headless Chromium for one attempt and for untrusted pages (docs/guide/browser.md).
//!
//! Invariants:
//! - The browser has no network but the proxy of this crate, which connects to addresses that it has checked.
//! - When its [`Browser`] is dropped, or the worker dies, a guard process kills the browser and removes its directory.
//! - What a page controls is bounded: memory, bytes, time, the messages of the browser and the texts of results.

// A browser: its process, what it says, what it reaches.
mod devtools;
mod facts;
mod launch;
mod proxy;
mod usage;

// Its page.
mod actions;
mod browser;
mod error;

pub use actions::{Screenshot, Target, Typed};
pub use browser::{Browser, Browsers, Slot};
pub use error::BrowserError;
pub use facts::InUse;
pub use proxy::Transfer;
