//! What is known of a running browser, shared by its tasks.

use std::{
    collections::VecDeque,
    io::PipeWriter,
    sync::{Arc, Weak},
    time::Instant,
};

use longhaul_domain::{TenantId, cut};
use longhaul_fairness::Share;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Maximum notes for one result, and maximum bytes of one.
const MAX_NOTES: usize = 8;
const NOTE_BYTES: usize = 400;

/// State of the page, as the browser's events tell it.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageState {
    /// Number of navigations that the main frame began.
    pub(crate) begun: u64,
    /// Number of documents that the main frame loaded completely.
    pub(crate) loaded: u64,
    /// Reason why the browser is gone.
    pub(crate) gone: Option<String>,
}

/// A running browser, as its tasks see it.
#[derive(Debug)]
pub(crate) struct Facts {
    page: watch::Sender<PageState>,
    /// Events that the model should know of, for the next result.
    notes: Mutex<VecDeque<String>>,
    /// Write end of the guard's pipe. Dropping it kills the browser.
    life: Mutex<Option<PipeWriter>>,
    used: Mutex<Instant>,
    /// Place of the browser, which its process holds.
    place: Weak<Share<TenantId>>,
}

/// A call that uses the browser. While there is none, another tenant may get the browser's place.
#[derive(Debug)]
pub struct InUse(Arc<Facts>);

impl InUse {
    pub(crate) fn new(facts: &Arc<Facts>) -> Self {
        facts.touch();
        if let Some(place) = facts.place.upgrade() {
            place.set_busy();
        }
        Self(Arc::clone(facts))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.touch();
        if let Some(place) = self.0.place.upgrade() {
            place.set_idle();
        }
    }
}

impl Facts {
    pub(crate) fn new(life: PipeWriter, place: &Arc<Share<TenantId>>) -> Arc<Self> {
        Arc::new(Self {
            page: watch::Sender::default(),
            notes: Mutex::default(),
            life: Mutex::new(Some(life)),
            used: Mutex::new(Instant::now()),
            place: Arc::downgrade(place),
        })
    }

    /// Kills the browser. The first reason is kept.
    pub(crate) fn end(&self, reason: &str) {
        self.page.send_modify(|page| {
            page.gone.get_or_insert_with(|| reason.to_owned());
        });
        self.life.lock().take();
    }

    /// Kills the browser if another tenant needs its place.
    pub(crate) fn give_way(&self) {
        if self.place.upgrade().is_some_and(|place| place.is_asked_back()) {
            self.end("another tenant of this worker had none, and it was without a call for longest");
        }
    }

    pub(crate) fn page(&self) -> watch::Receiver<PageState> {
        self.page.subscribe()
    }

    pub(crate) fn gone(&self) -> Option<String> {
        self.page.borrow().gone.clone()
    }

    pub(crate) fn begun(&self) {
        self.page.send_modify(|page| page.begun += 1);
    }

    pub(crate) fn loaded(&self) {
        self.page.send_modify(|page| page.loaded += 1);
    }

    /// Adds a note to the next result. Beyond the limits notes are dropped, and repetitions always.
    pub(crate) fn note(&self, note: &str) {
        let note = cut(note, NOTE_BYTES);
        let mut notes = self.notes.lock();
        if notes.len() < MAX_NOTES && !notes.iter().any(|known| *known == note) {
            notes.push_back(note.into_owned());
        }
    }

    pub(crate) fn take_notes(&self) -> VecDeque<String> {
        std::mem::take(&mut *self.notes.lock())
    }

    /// Marks the browser as in use now.
    fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    pub(crate) fn used(&self) -> Instant {
        *self.used.lock()
    }
}
