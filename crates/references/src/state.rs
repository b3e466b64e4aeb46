//! The state of a run: an append-only log of writes, read by folding it.
//!
//! Writes are numbered in the order in which their calls finished, so that the last completion wins regardless of
//! the order in the reply. The journal stores a call's writes in the call's step and restores them on replay, in
//! any order.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use longhaul_sdk::spec::{AgentLimits, InstancesSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    fold::{Effect, Method, fold},
    instance::Instance,
    path::{Kind, Path, find},
};

/// Maximum known paths suggested to a model that read a path which does not exist.
const MAX_SUGGESTIONS: usize = 5;

/// One value written to one path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateWrite {
    /// Position in the log: the order of completion.
    pub order: u64,
    /// Number of the turn whose call wrote it.
    pub tick: u32,
    pub call_id: String,
    /// The only instance that sees the write; all instances if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Instance>,
    pub path: Path,
    pub method: Method,
    pub value: Value,
}

/// The write of a finished call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallWrite {
    pub tick: u32,
    pub call_id: String,
    pub instance: Option<Instance>,
    /// Paths to write; each gets the value.
    pub paths: Vec<Path>,
    pub method: Method,
    pub value: Value,
}

/// Two calls of one turn that `set` the same or overlapping paths. The later completion won.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateConflict {
    pub path: Path,
    /// Call whose value remains.
    pub kept: String,
    /// Call whose value was overwritten, at least in part.
    pub(crate) overwritten: String,
}

/// Reason why a value was not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error("the result has {bytes} bytes; a value stored at a path may have {max}")]
    ValueTooLarge { bytes: usize, max: usize },
    #[error("the state would have {bytes} bytes with this result; one execution may keep {max}")]
    StateTooLarge { bytes: usize, max: usize },
}

/// Limits on the state of a run, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateLimits {
    pub value_bytes: usize,
    pub total_bytes: usize,
}

impl From<&AgentLimits> for StateLimits {
    fn from(limits: &AgentLimits) -> Self {
        Self { value_bytes: limits.max_state_value_bytes as usize, total_bytes: limits.max_state_bytes as usize }
    }
}

/// All data that references of a run can read.
#[derive(Debug)]
pub struct StateLog {
    input: Arc<Value>,
    /// Member of the input whose items are the inputs of the instances.
    items: Option<String>,
    limits: StateLimits,
    /// Sorted by `order`. No write is dropped: a write hidden by a later one may still have decided a value above
    /// it.
    writes: Vec<StateWrite>,
    calls: BTreeMap<String, Value>,
    bytes: usize,
    next_order: u64,
}

impl StateLog {
    /// A log without writes over the execution's `input`.
    pub fn new(input: impl Into<Arc<Value>>, instances: Option<&InstancesSpec>, limits: StateLimits) -> Self {
        let items = instances.and_then(|spec| spec.over.clone());
        Self { input: input.into(), items, limits, writes: Vec::new(), calls: BTreeMap::new(), bytes: 0, next_order: 1 }
    }

    /// The value at `path` as `instance` sees it: its own writes applied after the writes without an instance. A
    /// written null is a value.
    pub fn read<'a>(&'a self, path: &Path, instance: Option<&'a Instance>) -> Option<Cow<'a, Value>> {
        match path.kind {
            Kind::Arguments => None,
            Kind::Input => self.read_input(path, instance),
            Kind::Calls => {
                let (id, rest) = path.segments.split_first()?;
                find(self.calls.get(id)?, rest).map(Cow::Borrowed)
            }
            Kind::State | Kind::Data => match instance {
                None => fold(self.effects(None), path),
                Some(_) => fold(self.effects(None).chain(self.effects(instance)), path),
            },
        }
    }

    /// Appends the write of a finished call, all or nothing, and returns the records for the journal.
    ///
    /// # Errors
    /// If the value or the whole state would exceed its limit.
    pub fn write(&mut self, call: CallWrite) -> Result<Vec<StateWrite>, StateError> {
        let bytes = size(&call.value);
        if bytes > self.limits.value_bytes {
            return Err(StateError::ValueTooLarge { bytes, max: self.limits.value_bytes });
        }
        let with_it = self.bytes + bytes * call.paths.len();
        if with_it > self.limits.total_bytes {
            return Err(StateError::StateTooLarge { bytes: with_it, max: self.limits.total_bytes });
        }
        let CallWrite { tick, call_id, instance, paths, method, value } = call;
        let written: Vec<_> = paths
            .into_iter()
            .zip(self.next_order..)
            .map(|(path, order)| StateWrite {
                order,
                tick,
                call_id: call_id.clone(),
                instance: instance.clone(),
                path,
                method,
                value: value.clone(),
            })
            .collect();
        self.restore(written.clone());
        Ok(written)
    }

    /// Restores writes that [`write`](Self::write) returned earlier. Each is inserted at its `order`, so calls may
    /// be restored in any order; a write that is already in the log is skipped.
    pub fn restore(&mut self, writes: Vec<StateWrite>) {
        for write in writes {
            self.next_order = self.next_order.max(write.order + 1);
            if self.writes.binary_search_by_key(&write.order, |known| known.order).is_ok() {
                continue;
            }
            self.bytes += size(&write.value);
            let at = self.writes.partition_point(|known| known.order < write.order);
            self.writes.insert(at, write);
        }
    }

    /// Makes the result of a finished call readable as `†calls.<id>`.
    pub fn finish_call(&mut self, call_id: &str, value: Value) {
        self.calls.insert(call_id.to_owned(), value);
    }

    /// Conflicting `set` writes of different calls in one turn, in the order of completion.
    pub fn conflicts(&self, tick: u32) -> Vec<StateConflict> {
        let sets: Vec<_> =
            self.writes.iter().filter(|write| write.tick == tick && write.method == Method::Set).collect();
        let mut conflicts = Vec::new();
        for (at, later) in sets.iter().enumerate() {
            let against = |earlier: &&&StateWrite| {
                earlier.call_id != later.call_id
                    && earlier.instance == later.instance
                    && earlier.path.is_above_or_below(&later.path)
            };
            conflicts.extend(sets[..at].iter().filter(against).map(|earlier| StateConflict {
                path: later.path.clone(),
                kept: later.call_id.clone(),
                overwritten: earlier.call_id.clone(),
            }));
        }
        conflicts
    }

    /// Known paths closest to `path` by Levenshtein distance, the closest first.
    pub fn nearest(&self, path: &Path) -> Vec<Path> {
        let mut known: Vec<Path> = self.writes.iter().map(|write| write.path.clone()).collect();
        let members = |kind, names: Vec<String>| names.into_iter().map(move |name| Path { kind, segments: vec![name] });
        let inputs = self.input.as_object().map(|members| members.keys().cloned().collect());
        known.extend(members(Kind::Input, inputs.unwrap_or_default()));
        known.extend(members(Kind::Calls, self.calls.keys().cloned().collect()));
        known.sort();
        known.dedup();
        let wanted = path.to_string();
        known.sort_by_cached_key(|known| strsim::levenshtein(&known.to_string(), &wanted));
        known.truncate(MAX_SUGGESTIONS);
        known
    }

    fn effects<'a>(&'a self, of: Option<&'a Instance>) -> impl Iterator<Item = Effect<'a>> {
        self.writes.iter().filter(move |write| write.instance.as_ref() == of).map(StateWrite::effect)
    }

    fn read_input(&self, path: &Path, instance: Option<&Instance>) -> Option<Cow<'_, Value>> {
        if let (Some(instance), Some(items)) = (instance, &self.items)
            && let Some(items) = self.input.get(items).and_then(Value::as_array)
            && let Some((_, item)) = items.iter().enumerate().find(|(at, _)| Instance::numbered(*at) == *instance)
            && let Some(own) = path.find(item)
        {
            return Some(Cow::Borrowed(own));
        }
        path.find(&self.input).map(Cow::Borrowed)
    }
}

impl StateWrite {
    fn effect(&self) -> Effect<'_> {
        Effect { path: &self.path, method: self.method, value: &self.value }
    }
}

/// Bytes of the value's JSON text, counted without building it.
pub(super) fn size(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Neither the counter nor the serialization of a JSON value can fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}
