//! JSON Schemas written by tenants, models and tool servers: compiled within limits, and validated within a work
//! budget.
//!
//! A `$ref` never fetches anything, and no pattern takes exponential time. docs/design/guards.md describes the bounds.

mod meter;
pub mod report;
mod size;
mod survey;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use jsonschema::{PatternOptions, ValidationError, ValidationOptions, Validator};
use longhaul_sdk::numbers;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use self::{meter::Weight, size::Size};
use crate::cpu_lane::{CpuLane, aside};
pub use survey::{MAX_EXPANSIONS, MAX_PATTERNS, MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS};

/// Work budget of a check on the caller's thread, in units: about one millisecond at worst.
const INLINE_WORK: u64 = 100_000;
/// Work budget of a check whose caller cannot await: tens of milliseconds at worst.
const BRIEF_WORK: u64 = 4_000_000;
/// Work budget of any check: a few tenths of a second at worst.
const MAX_WORK: u64 = 40_000_000;
/// Upper bound of the cost of one keyword at one value. The meter cannot interrupt a single keyword.
const MAX_LOOK: u64 = 1_000_000_000;
/// Work budget for listing violations; it also bounds their memory.
const LISTING_WORK: u64 = 400_000;
/// Maximum subschemas on a stack of default size: in-place chain times depth of the value.
const INLINE_STACK: usize = 400;
/// Maximum subschemas on the stack of [`aside`].
const MAX_STACK: usize = 16_000;
/// Subschemas above which a schema is compiled and dropped on a large stack: both recurse along references.
const SMALL_SCHEMA: usize = 100;
/// Longest wait of a costly check for its turn.
const PATIENCE: Duration = Duration::from_secs(20);
/// Size limit of one compiled pattern, in bytes.
const PATTERN_SIZE_LIMIT: usize = 256 << 10;
/// Backtracking steps of one look-around pattern on one string.
const BACKTRACK_LIMIT: usize = 20_000;
/// Limits of a cache: number of schemas, and their total weight in bytes.
const MAX_CACHED: usize = 512;
const MAX_CACHED_WEIGHT: usize = 128 << 20;

static COSTLY: CpuLane = CpuLane::new();

/// Reason why a value was not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unchecked {
    /// The value is too large for the schema, or the schema too expensive for the value.
    #[error("it is too large to be checked against its schema")]
    TooMuchWork,
    /// Other costly checks used up the waiting time.
    #[error("too many large values are being checked; try again later")]
    Busy,
}

/// A compiled schema. Clones share the compilation.
#[derive(Debug, Clone)]
pub struct Schema(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    /// `None` only during drop.
    validator: Option<Validator>,
    chain: usize,
    heaviest: Weight,
    subschemas: usize,
    /// Estimated memory, in bytes.
    weight: usize,
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let validator = self.validator.take();
        if self.subschemas > SMALL_SCHEMA && aside(|| drop(validator)).is_err() {
            tracing::warn!("no thread could be started to drop a compiled schema; it was dropped here");
        }
    }
}

/// Kind of regular expressions allowed in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patterns {
    /// Expressions matched in linear time.
    Linear,
    /// Also look-around, which generators for other languages emit. It backtracks, up to a limit.
    LookAround,
}

impl Schema {
    /// # Errors
    /// Fails if the schema is invalid, exceeds a limit, refers to another document, or has a pattern of a kind not
    /// allowed.
    pub fn compile(schema: &Value, patterns: Patterns) -> Result<Self, String> {
        numbers::check(schema).map_err(|error| error.with_path())?;
        let mut survey = survey::survey(schema)?;
        let metered = std::mem::take(&mut survey.metered);
        let build = || match (build_linear(&metered), patterns) {
            (Err(_), Patterns::LookAround) => {
                let bounded =
                    PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT).size_limit(PATTERN_SIZE_LIMIT);
                options().with_pattern_options(bounded).build(&metered).map_err(|error| explained(&error))
            }
            (built, _) => built,
        };
        let built = if survey.subschemas > SMALL_SCHEMA {
            aside(build).map_err(|error| format!("it cannot be compiled: {error}"))?
        } else {
            build()
        };
        let weight = 16 * survey.bytes + survey.patterns * PATTERN_SIZE_LIMIT;
        Ok(Self(Arc::new(Compiled {
            validator: Some(built?),
            chain: survey.chain,
            heaviest: survey.heaviest,
            subschemas: survey.subschemas,
            weight,
        })))
    }

    /// Validates `value`. Returns `None` if it satisfies the schema, otherwise the result of `list` over the
    /// violations. A costly check runs on another thread, and the runtime's other tasks continue.
    ///
    /// # Errors
    /// [`Unchecked`] if the value was not checked.
    pub async fn check<T: Send>(
        &self,
        value: &Value,
        list: impl Fn(&mut dyn Iterator<Item = ValidationError<'_>>) -> T + Clone + Send,
    ) -> Result<Option<Listing<T>>, Unchecked> {
        if self.is_inline(value)? {
            let done = self.run(value, INLINE_WORK, list.clone());
            if done.is_ok() {
                return done;
            }
        }
        let Ok(turn) = timeout(PATIENCE, COSTLY.turn()).await else { return Err(Unchecked::Busy) };
        turn.run(|| self.run(value, MAX_WORK, list)).unwrap_or(Err(Unchecked::Busy))
    }

    /// Like [`check`](Self::check) for callers that cannot await. Refuses a value whose check would take long.
    ///
    /// # Errors
    /// [`Unchecked`] if the value was not checked.
    pub fn check_briefly<T: Send>(
        &self,
        value: &Value,
        list: impl Fn(&mut dyn Iterator<Item = ValidationError<'_>>) -> T + Clone + Send,
    ) -> Result<Option<Listing<T>>, Unchecked> {
        if self.is_inline(value)? {
            let done = self.run(value, INLINE_WORK, list.clone());
            if done.is_ok() {
                return done;
            }
        }
        aside(|| self.run(value, BRIEF_WORK, list)).unwrap_or(Err(Unchecked::Busy))
    }

    fn run<T>(
        &self,
        value: &Value,
        work: u64,
        list: impl Fn(&mut dyn Iterator<Item = ValidationError<'_>>) -> T,
    ) -> Result<Option<Listing<T>>, Unchecked> {
        let Some(validator) = &self.0.validator else { return Err(Unchecked::Busy) };
        let is_valid = meter::within(work, || validator.is_valid(value)).map_err(|_| Unchecked::TooMuchWork)?;
        if is_valid {
            return Ok(None);
        }
        let listed = meter::within(LISTING_WORK, || list(&mut validator.iter_errors(value)));
        Ok(Some(listed.map_or(Listing::TooLong, Listing::Whole)))
    }

    /// Returns true if the check may run on the caller's thread and stack.
    fn is_inline(&self, value: &Value) -> Result<bool, Unchecked> {
        // The library compares numbers exactly and would expand an exponent of ten digits.
        numbers::check(value).map_err(|_| Unchecked::TooMuchWork)?;
        let size = Size::of(value);
        let stack = self.0.chain.saturating_mul(size.depth);
        // The meter interrupts only between keywords, so the cost of one keyword at one value is bounded up front.
        let look = self.0.heaviest.of_all(&size);
        if look > MAX_LOOK || stack > MAX_STACK {
            return Err(Unchecked::TooMuchWork);
        }
        Ok(look <= BRIEF_WORK && stack <= INLINE_STACK)
    }
}

/// Violations of a schema by a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing<T> {
    /// All violations, collected.
    Whole(T),
    /// The value is invalid, but listing the violations costs too much.
    TooLong,
}

/// Message for [`Listing::TooLong`].
pub const TOO_LONG: &str = "the value does not satisfy the schema, and is too large for its violations to be listed";

fn options() -> ValidationOptions<'static> {
    jsonschema::options().with_keyword(meter::METER, meter::keyword).should_validate_formats(true)
}

fn build_linear(metered: &Value) -> Result<Validator, String> {
    let linear = PatternOptions::regex().size_limit(PATTERN_SIZE_LIMIT).dfa_size_limit(PATTERN_SIZE_LIMIT);
    options().with_pattern_options(linear).build(metered).map_err(|error| explained(&error))
}

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Describes the error of an invalid schema, with its JSON pointer.
fn explained(error: &ValidationError<'_>) -> String {
    let at = error.instance_path().to_string();
    if at.ends_with("/type") {
        // The meta-schema says no more than that none of its alternatives fits.
        return format!("{at}: {} is no type; the types are {}", error.instance(), TYPES.join(", "));
    }
    if at.is_empty() { error.to_string() } else { format!("{at}: {error}") }
}

/// Cache of compiled schemas by content hash, bounded in number and weight; evicts the oldest. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SchemaCache(Arc<Mutex<Cached>>);

#[derive(Debug, Default)]
struct Cached {
    by_hash: HashMap<[u8; 32], Schema>,
    order: VecDeque<[u8; 32]>,
    weight: usize,
}

impl SchemaCache {
    /// Returns the compiled form of `schema`, which may have look-around patterns.
    ///
    /// # Errors
    /// Same as [`Schema::compile`].
    pub fn get(&self, schema: &Value) -> Result<Schema, String> {
        let hash: [u8; 32] = Sha256::digest(schema.to_string()).into();
        if let Some(known) = self.lock().by_hash.get(&hash) {
            return Ok(known.clone());
        }
        // Compiled outside the lock; two executions may both compile the same schema once.
        let compiled = Schema::compile(schema, Patterns::LookAround)?;
        let mut dropped = Vec::new();
        let mut cached = self.lock();
        if cached.by_hash.insert(hash, compiled.clone()).is_none() {
            cached.order.push_back(hash);
            cached.weight += compiled.0.weight;
        }
        while (cached.order.len() > MAX_CACHED || cached.weight > MAX_CACHED_WEIGHT)
            && let Some(oldest) = cached.order.pop_front()
        {
            if let Some(schema) = cached.by_hash.remove(&oldest) {
                cached.weight -= schema.0.weight;
                dropped.push(schema);
            }
        }
        drop(cached);
        Ok(compiled)
    }

    fn lock(&self) -> MutexGuard<'_, Cached> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests;
