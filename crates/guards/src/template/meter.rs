//! Budgets of memory and work for one rendering. A rendering stays on one thread from start to end.

use std::{cell::Cell, fmt, io, thread::LocalKey};

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

/// Maximum bytes that one rendering may allocate, freed or not, beside its input.
pub const MAX_MEMORY: usize = 16 << 20;
/// Maximum bytes and values that one rendering may read, in units of a few nanoseconds.
pub const MAX_WORK: usize = 20_000_000;
/// Budgets of a rendering on an async thread: about a millisecond.
const BRIEF_MEMORY: usize = 1 << 20;
const BRIEF_WORK: usize = 200_000;
/// Maximum nesting of a value. Parsed JSON has fewer levels.
const MAX_DEPTH: usize = 200;
/// Estimated bytes of a value in a list or map.
pub(super) const VALUE_BYTES: usize = 32;

thread_local! {
    static MEMORY: Cell<usize> = const { Cell::new(0) };
    static WORK: Cell<usize> = const { Cell::new(0) };
    static EXCEEDED: Cell<bool> = const { Cell::new(false) };
}

/// Size of the budgets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Allowance {
    /// For an async thread.
    Brief,
    Whole,
}

pub(super) fn begin(allowance: Allowance) {
    let (memory, work) = match allowance {
        Allowance::Brief => (BRIEF_MEMORY, BRIEF_WORK),
        Allowance::Whole => (MAX_MEMORY, MAX_WORK),
    };
    MEMORY.set(memory);
    WORK.set(work);
    EXCEEDED.set(false);
}

/// Returns true if the rendering exceeded a budget.
pub(super) fn is_exceeded() -> bool {
    EXCEEDED.get()
}

fn take(from: &'static LocalKey<Cell<usize>>, amount: usize) -> bool {
    let left = from.get().checked_sub(amount);
    match left {
        Some(left) => from.set(left),
        None => EXCEEDED.set(true),
    }
    left.is_some()
}

/// Charges memory, before it is allocated.
///
/// # Errors
/// Fails if the memory budget is used up.
pub fn hold(bytes: usize) -> Result<(), Error> {
    let is_left = take(&MEMORY, bytes);
    if is_left { Ok(()) } else { Err(invalid(format!("the template needs more than {MAX_MEMORY} bytes of memory"))) }
}

/// Charges work, before it is done.
///
/// # Errors
/// Fails if the work budget is used up.
pub fn work(units: usize) -> Result<(), Error> {
    let is_left = take(&WORK, units);
    if is_left { Ok(()) } else { Err(invalid("the template does more work than it may".into())) }
}

pub(super) fn invalid(detail: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, detail)
}

/// Size of a value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) nodes: usize,
    /// Total bytes of strings.
    pub(super) bytes: usize,
    pub(super) depth: usize,
}

impl Size {
    pub(super) fn of(value: &Value) -> Result<Self, Error> {
        Self::of_all(std::slice::from_ref(value))
    }

    pub(super) fn of_all(values: &[Value]) -> Result<Self, Error> {
        let mut size = Self::default();
        for value in values {
            size.add(value, 1, false)?;
        }
        Ok(size)
    }

    /// Like [`of`](Self::of), for a value to be stored in another. Refuses a namespace, which could come to contain
    /// itself.
    pub(super) fn of_stored(value: &Value) -> Result<Self, Error> {
        let mut size = Self::default();
        size.add(value, 1, true)?;
        Ok(size)
    }

    fn add(&mut self, value: &Value, depth: usize, is_stored: bool) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!("a value is nested deeper than {MAX_DEPTH} levels")));
        }
        work(1)?;
        self.nodes += 1;
        self.depth = self.depth.max(depth);
        if let Some(text) = value.as_str() {
            self.bytes += text.len();
            return work(text.len() / 16);
        }
        let is_map = value.kind() == ValueKind::Map;
        if !is_map && !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
            self.bytes += VALUE_BYTES;
            return Ok(());
        }
        if is_stored && value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace")) {
            return Err(invalid("a namespace cannot be stored in another value".into()));
        }
        for item in value.try_iter()? {
            self.add(&item, depth + 1, is_stored)?;
            if is_map {
                self.add(&value.get_item(&item)?, depth + 1, is_stored)?;
            }
        }
        Ok(())
    }
}

/// A string whose bytes are charged to the rendering's memory.
#[derive(Debug, Default)]
pub(super) struct Bounded {
    pub(super) text: Vec<u8>,
}

impl Bounded {
    pub(super) fn into_text(self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Factor 3: growing doubles the buffer, and the text is then copied into its value.
        hold(3 * text.len()).map_err(|_| fmt::Error)?;
        self.text.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        hold(3 * bytes.len()).map_err(io::Error::other)?;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
