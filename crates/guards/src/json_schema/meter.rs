//! Meter of a validation: each visited subschema deducts its cost from a work budget.
//!
//! The validation library cannot be interrupted, but a custom keyword can unwind through it. The meter is such a
//! keyword.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use jsonschema::{Keyword, ValidationError, paths::Location};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::size::Size;

/// Name of the keyword. No JSON Schema uses it; a schema that does is overwritten.
pub(super) const METER: &str = "\u{1}meter";

/// Cost of a subschema, in units of about ten nanoseconds at worst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Weight {
    pub(super) base: u64,
    /// Per item of an array or member of an object.
    pub(super) per_item: u64,
    /// Per byte of a string, beyond the cost of reading it.
    pub(super) per_byte: u64,
    /// Per byte of an object's member names.
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

    /// Upper bound of the cost of one subschema at any value of this size.
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

/// The work budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exhausted;

/// Runs a validation within a work budget.
///
/// # Errors
/// [`Exhausted`] if the budget is used up.
pub(super) fn within<T>(allowance: u64, validate: impl FnOnce() -> T) -> Result<T, Exhausted> {
    let outer = LEFT.replace(allowance);
    // Unwind-safe: only the compiled schema outlives the unwinding, and a validation only reads it.
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

/// Builds the meter of one subschema.
pub(super) fn keyword<'a>(
    _: &'a Map<String, Value>,
    weight: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    let weight = Weight::deserialize(weight).map_err(|error| ValidationError::custom(error.to_string()))?;
    Ok(Box::new(Meter(weight)))
}
