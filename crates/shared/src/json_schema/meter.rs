//! The meter of a validation: each subschema, as it is looked at, takes what it costs from an allowance.
//!
//! The library that validates cannot be interrupted, but a keyword can unwind through it: the meter is a keyword of our own.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use jsonschema::{Keyword, ValidationError, paths::Location};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::survey::Size;

/// The keyword. No JSON Schema has it: a schema that says it is overwritten.
pub(super) const METER: &str = "\u{1}meter";

/// What a subschema costs, in units of about ten nanoseconds at worst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Weight {
    pub(super) base: u64,
    /// For each item of an array, each member of an object.
    pub(super) per_item: u64,
    /// For each byte of a string, above reading it.
    pub(super) per_byte: u64,
    /// For each byte of an object's names.
    pub(super) per_key_byte: u64,
}

impl Weight {
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            base: self.base.max(other.base),
            per_item: self.per_item.max(other.per_item),
            per_byte: self.per_byte.max(other.per_byte),
            per_key_byte: self.per_key_byte.max(other.per_key_byte),
        }
    }

    /// The most that one look at a value of this size can cost.
    pub(super) fn of_all(&self, size: &Size) -> u64 {
        let items = size.nodes.saturating_mul(self.per_item);
        let text = size.text.saturating_mul(self.per_byte);
        let names = size.names.saturating_mul(self.per_key_byte);
        self.base.saturating_add(items).saturating_add(text).saturating_add(names)
    }

    fn of(&self, value: &Value) -> u64 {
        let (count, rate) = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => (0, 0),
            Value::String(text) => return self.string(text),
            Value::Array(items) => (items.len(), self.per_item),
            Value::Object(members) => {
                let names: u64 = match self.per_key_byte {
                    0 => 0,
                    rate => members.keys().map(|name| name.len() as u64).sum::<u64>().saturating_mul(rate),
                };
                let items = (members.len() as u64).saturating_mul(self.per_item);
                return self.base.saturating_add(items).saturating_add(names);
            }
        };
        self.base.saturating_add((count as u64).saturating_mul(rate))
    }

    fn string(&self, text: &str) -> u64 {
        let length = text.len() as u64;
        self.base.saturating_add(length / 16).saturating_add(length.saturating_mul(self.per_byte))
    }
}

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The allowance is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exhausted;

/// Runs a validation within an allowance.
///
/// # Errors
/// It is used up.
pub(super) fn within<T>(allowance: u64, validate: impl FnOnce() -> T) -> Result<T, Exhausted> {
    let outer = LEFT.replace(allowance);
    // Nothing outlives the unwinding but the compiled schema, which a validation only reads.
    let result = catch_unwind(AssertUnwindSafe(validate));
    LEFT.set(outer);
    match result {
        Ok(done) => Ok(done),
        Err(payload) if payload.is::<Exhausted>() => Err(Exhausted),
        Err(payload) => resume_unwind(payload),
    }
}

struct Meter(Weight);

impl Meter {
    fn charge(&self, value: &Value) {
        match LEFT.get().checked_sub(self.0.of(value)) {
            Some(left) => LEFT.set(left),
            None => resume_unwind(Box::new(Exhausted)),
        }
    }
}

impl<'i> Keyword<'i> for Meter {
    fn validate(&self, instance: &'i Value) -> Result<(), ValidationError<'i>> {
        self.charge(instance);
        Ok(())
    }

    fn is_valid(&self, instance: &'i Value) -> bool {
        self.charge(instance);
        true
    }
}

/// Makes the meter of one subschema.
pub(super) fn keyword<'a>(
    _: &'a Map<String, Value>,
    weight: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    let weight = Weight::deserialize(weight).map_err(|error| ValidationError::custom(error.to_string()))?;
    Ok(Box::new(Meter(weight)))
}
