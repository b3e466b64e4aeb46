//! Instances: one plan applied to many items, each with its own view of input and state.

use std::fmt;

use longhaul_sdk::spec::InstancesSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum characters of a token that the model invents.
const MAX_TOKEN_CHARS: usize = 64;
/// Number of items with a circled number as token; later items use digits.
const CIRCLED: usize = 20;

/// Token of one instance, such as `①`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Instance(String);

impl Instance {
    /// The instance of the item at `index` (from 0): ① to ⑳, then digits from 21.
    pub(crate) fn numbered(index: usize) -> Self {
        let circled = (index < CIRCLED).then(|| char::from_u32(0x2460 + u32::try_from(index).unwrap_or_default()));
        Self(circled.flatten().map_or_else(|| (index + 1).to_string(), String::from))
    }

    /// Index of the item: `①` and `1` are both 0.
    fn number(&self) -> Option<usize> {
        let mut chars = self.0.chars();
        match (chars.next(), chars.next()) {
            (Some(circled @ '①'..='⑳'), None) => Some((circled as usize) - 0x2460),
            (_, _) => self.0.parse::<usize>().ok()?.checked_sub(1),
        }
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The instances that a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Instances {
    /// No instances: the model is not told of them.
    #[default]
    Off,
    /// Any token that the model invents.
    Free,
    /// One instance per item of the input.
    Items(usize),
}

impl Instances {
    /// Resolves an agent's settings for an input.
    pub fn of(spec: Option<&InstancesSpec>, input: &Value) -> Self {
        match spec {
            None => Self::Off,
            Some(InstancesSpec { over: None }) => Self::Free,
            Some(InstancesSpec { over: Some(member) }) => {
                Self::Items(input.get(member).and_then(Value::as_array).map_or(0, Vec::len))
            }
        }
    }

    /// Parses a token written by the model.
    ///
    /// # Errors
    /// If the run has no such instance.
    pub fn named(self, token: &str) -> Result<Instance, String> {
        let token = token.trim();
        match self {
            Self::Off => Err("this agent has no instances".to_owned()),
            Self::Free if token.is_empty() => Err("an instance needs a token, such as ①".to_owned()),
            Self::Free if token.chars().count() > MAX_TOKEN_CHARS || token.chars().any(char::is_control) => {
                Err(format!("the token of an instance may have {MAX_TOKEN_CHARS} characters"))
            }
            Self::Free => Ok(Instance(token.to_owned())),
            Self::Items(items) => match Instance(token.to_owned()).number() {
                Some(index) if index < items => Ok(Instance::numbered(index)),
                Some(_) | None if items == 0 => Err("the input has no items, so there are no instances".to_owned()),
                Some(_) | None => {
                    let last = Instance::numbered(items - 1);
                    Err(format!("there is no instance `{token}`; the input has {items}, ① to {last}"))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn circled_number_and_digits_name_the_same_item() {
        let instances = Instances::of(Some(&InstancesSpec { over: Some("orders".into()) }), &json!({"orders": [1, 2]}));
        assert_eq!(instances, Instances::Items(2));
        assert_eq!(instances.named("①").unwrap().to_string(), "①");
        assert_eq!(instances.named(" 2 ").unwrap().to_string(), "②");
        assert_eq!(instances.named("③").unwrap_err(), "there is no instance `③`; the input has 2, ① to ②");
        assert_eq!(instances.named("0").unwrap_err(), "there is no instance `0`; the input has 2, ① to ②");
        assert_eq!(Instances::Items(30).named("21").unwrap().to_string(), "21");
        assert_eq!(Instances::Items(30).named("20").unwrap().to_string(), "⑳");
        assert!(Instances::Items(0).named("1").unwrap_err().contains("no items"));
    }

    #[test]
    fn free_tokens_are_accepted_within_bounds() {
        let free = Instances::of(Some(&InstancesSpec::default()), &json!({}));
        assert_eq!(free.named("berlin").unwrap().to_string(), "berlin");
        assert!(free.named("").is_err() && free.named(&"x".repeat(65)).is_err() && free.named("a\nb").is_err());
        assert_eq!(Instances::of(None, &json!({})).named("①").unwrap_err(), "this agent has no instances");
    }
}
