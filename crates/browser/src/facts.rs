//! What is known of a running browser, shared by its tasks.

use std::{collections::VecDeque, io::PipeWriter, sync::Arc, time::Instant};

use longhaul_shared::domain::cut;
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
}

impl Facts {
    pub(crate) fn new(life: PipeWriter) -> Arc<Self> {
        Arc::new(Self {
            page: watch::Sender::default(),
            notes: Mutex::default(),
            life: Mutex::new(Some(life)),
            used: Mutex::new(Instant::now()),
        })
    }

    /// Kills the browser. The first reason is kept.
    pub(crate) fn end(&self, reason: &str) {
        self.page.send_modify(|page| {
            page.gone.get_or_insert_with(|| reason.to_owned());
        });
        self.life.lock().take();
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
    pub(crate) fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    pub(crate) fn used(&self) -> Instant {
        *self.used.lock()
    }
}
