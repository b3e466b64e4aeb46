//! Estimates the cost of a JSON Schema before it is compiled: size, nesting, and number of checks per value.

use std::{borrow::Cow, collections::HashMap};

use longhaul_sdk::json_pointer::token;
use serde_json::{Map, Value, json};

use super::meter::{METER, Weight};

/// Maximum bytes of a schema's JSON.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Maximum nesting of objects and arrays.
pub const MAX_SCHEMA_DEPTH: usize = 64;
/// Maximum number of objects and booleans that are schemas, including the root.
pub const MAX_SUBSCHEMAS: usize = 3_000;
/// Maximum number of subschemas that one value is checked against, counting each path of references.
pub const MAX_EXPANSIONS: u64 = 10_000;
/// Maximum length of a chain of subschemas that apply to the same value.
const MAX_CHAIN: usize = 128;
/// Maximum number of regular expressions, in `pattern` and as names in `patternProperties`.
pub const MAX_PATTERNS: usize = 64;
/// Maximum bytes of one regular expression.
const MAX_PATTERN_BYTES: usize = 4 << 10;
/// Upper bound of simultaneous automaton states of a regular expression, given the size limit of compiled ones.
const MAX_PATTERN_STATES: u64 = 1_000;

/// Keywords whose members are named schemas.
const MAPS: [&str; 7] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies", "$vocabulary"];
/// Keywords whose value is data even if it looks like a schema.
const DATA: [&str; 9] =
    ["const", "enum", "default", "examples", "example", "discriminator", "xml", "externalDocs", "dependentRequired"];
/// Keywords whose subschemas apply to the same value.
const IN_PLACE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];

/// Result of a survey.
#[derive(Debug)]
pub(super) struct Survey {
    /// Copy of the schema with a meter in each subschema.
    pub(super) metered: Value,
    pub(super) subschemas: usize,
    pub(super) patterns: usize,
    pub(super) bytes: usize,
    /// Longest chain of subschemas that apply to the same value.
    pub(super) chain: usize,
    /// Componentwise maximum of the weights of all subschemas.
    pub(super) heaviest: Weight,
}

/// Measures `schema` and adds the meters.
///
/// # Errors
/// Fails if a limit is exceeded (and names it), or a reference cannot be followed.
pub(super) fn survey(schema: &Value) -> Result<Survey, String> {
    let bytes = schema.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Err(format!("it is {bytes} bytes long, {MAX_SCHEMA_BYTES} are allowed"));
    }
    let mut walk = Walk { old_draft: is_draft_4(schema), ..Walk::default() };
    walk.subschema(schema, String::new(), 0)?;
    let mut count = Count { walk: &walk, seen: vec![Seen::Not; walk.found.len()] };
    let mut chain = 0;
    let mut metered = schema.clone();
    let mut heaviest = Weight::default();
    for (at, found) in walk.found.iter().enumerate() {
        let Reach { expansions, length } = count.reach(at, 0)?;
        chain = chain.max(length);
        let mut weight = found.weight;
        if found.is_unevaluated {
            weight.per_item = weight.per_item.saturating_add(expansions.saturating_mul(4));
        }
        heaviest = heaviest.max(weight);
        if let Some(Value::Object(object)) = metered.pointer_mut(&found.pointer) {
            // Only the root names the draft; a nested `$schema` would change the meaning of keywords there.
            if at > 0 {
                object.remove("$schema");
            }
            object.insert(METER.to_owned(), json!(weight));
        }
    }
    Ok(Survey { metered, subschemas: walk.found.len(), patterns: walk.patterns, bytes, chain, heaviest })
}

fn is_draft_4(schema: &Value) -> bool {
    let draft = schema.get("$schema").and_then(Value::as_str);
    draft.is_some_and(|draft| draft.contains("draft-03") || draft.contains("draft-04"))
}

/// One subschema.
#[derive(Debug)]
struct Found<'s> {
    pointer: String,
    weight: Weight,
    is_unevaluated: bool,
    /// Indexes of subschemas that apply to the same value.
    in_place: Vec<usize>,
    reference: Option<&'s str>,
}

#[derive(Debug, Default)]
struct Walk<'s> {
    found: Vec<Found<'s>>,
    by_pointer: HashMap<String, usize>,
    patterns: usize,
    old_draft: bool,
}

impl<'s> Walk<'s> {
    fn subschema(&mut self, schema: &'s Value, pointer: String, depth: usize) -> Result<usize, String> {
        if depth > MAX_SCHEMA_DEPTH {
            return Err(format!("it is nested deeper than {MAX_SCHEMA_DEPTH} levels"));
        }
        if self.found.len() == MAX_SUBSCHEMAS {
            return Err(format!("it has more than {MAX_SUBSCHEMAS} subschemas"));
        }
        let at = self.found.len();
        self.by_pointer.insert(pointer.clone(), at);
        self.found.push(Found {
            pointer: pointer.clone(),
            weight: Weight::default(),
            is_unevaluated: false,
            in_place: Vec::new(),
            reference: None,
        });
        if let Value::Object(object) = schema {
            let weight = self.weigh(object)?;
            let reference = self.reference(object, at)?;
            let is_unevaluated =
                object.contains_key("unevaluatedProperties") || object.contains_key("unevaluatedItems");
            let mut in_place = Vec::new();
            for (keyword, value) in object {
                if DATA.contains(&keyword.as_str()) {
                    continue;
                }
                let below = format!("{pointer}/{}", token(keyword));
                let mut applied = Vec::new();
                if MAPS.contains(&keyword.as_str()) {
                    self.map(value, &below, depth + 1, &mut applied)?;
                } else {
                    self.value(value, below, depth + 1, &mut applied)?;
                }
                if IN_PLACE.contains(&keyword.as_str()) {
                    in_place.append(&mut applied);
                }
            }
            let found = &mut self.found[at];
            (found.weight, found.reference, found.is_unevaluated, found.in_place) =
                (weight, reference, is_unevaluated, in_place);
        }
        Ok(at)
    }

    fn map(&mut self, map: &'s Value, at: &str, depth: usize, applied: &mut Vec<usize>) -> Result<(), String> {
        let members = map.as_object().into_iter().flatten();
        for (name, value) in members.filter(|(_, value)| value.is_object() || value.is_boolean()) {
            applied.push(self.subschema(value, format!("{at}/{}", token(name)), depth + 1)?);
        }
        Ok(())
    }

    /// Treats every object below a keyword as a schema, even below an unknown keyword, because a reference may
    /// point there.
    fn value(&mut self, value: &'s Value, at: String, depth: usize, applied: &mut Vec<usize>) -> Result<(), String> {
        match value {
            Value::Object(_) | Value::Bool(_) => applied.push(self.subschema(value, at, depth)?),
            Value::Array(_) if depth > MAX_SCHEMA_DEPTH => {
                return Err(format!("it is nested deeper than {MAX_SCHEMA_DEPTH} levels"));
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(item, format!("{at}/{index}"), depth + 1, applied)?;
                }
            }
            Value::Null | Value::Number(_) | Value::String(_) => {}
        }
        Ok(())
    }

    fn reference(&self, object: &'s Map<String, Value>, at: usize) -> Result<Option<&'s str>, String> {
        for keyword in ["$dynamicRef", "$recursiveRef"] {
            if object.get(keyword).is_some_and(Value::is_string) {
                return Err(format!("`{keyword}` is not supported"));
            }
        }
        let bases: &[&str] = if self.old_draft { &["$id", "id"] } else { &["$id"] };
        if at > 0 && bases.iter().any(|base| object.get(*base).is_some_and(Value::is_string)) {
            return Err("`$id` below the top is not supported".into());
        }
        match object.get("$ref") {
            Some(Value::String(reference)) if reference == "#" || reference.starts_with("#/") => {
                Ok(Some(reference.as_str()))
            }
            Some(Value::String(reference)) => Err(format!(
                "`$ref` must lead to a place in the schema, as in `#/$defs/name`: `{}`",
                reference.chars().take(100).collect::<String>()
            )),
            Some(_) | None => Ok(None),
        }
    }

    fn weigh(&mut self, object: &Map<String, Value>) -> Result<Weight, String> {
        let mut weight = Weight { base: 4 + object.len() as u64, per_item: 2, per_byte: 0, per_key_byte: 0 };
        for (keyword, value) in object {
            match (keyword.as_str(), value) {
                ("enum" | "const" | "dependentRequired" | "discriminator", value) => {
                    weight.base += value.to_string().len() as u64 / 4;
                }
                ("pattern", Value::String(pattern)) => weight.per_byte += self.pattern(pattern)?,
                ("patternProperties", Value::Object(patterns)) => {
                    weight.per_item += 8 * patterns.len() as u64;
                    for pattern in patterns.keys() {
                        weight.per_key_byte += self.pattern(pattern)?;
                    }
                }
                ("format" | "contentMediaType" | "contentEncoding", _) => weight.per_byte += 2,
                ("uniqueItems", Value::Bool(true)) => weight.per_item += 32,
                (_, Value::Array(entries)) => weight.base += entries.len() as u64,
                (_, Value::Object(entries)) => weight.base += entries.len() as u64,
                _ => {}
            }
        }
        Ok(weight)
    }

    /// Estimates how many states the expression can be in at once, which is the worst cost per byte.
    fn pattern(&mut self, pattern: &str) -> Result<u64, String> {
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            return Err(format!("it has more than {MAX_PATTERNS} regular expressions"));
        }
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(format!("a regular expression is longer than {MAX_PATTERN_BYTES} bytes"));
        }
        if matches_a_beginning(pattern) {
            return Ok(1);
        }
        let mut states = 1 + pattern.len() as u64 / 8;
        for repeated in pattern.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
            let most = repeated.split(',').filter_map(|bound| bound.trim().parse::<u64>().ok()).max();
            states = states.saturating_mul(most.unwrap_or(1).max(1));
        }
        Ok(states.min(MAX_PATTERN_STATES))
    }
}

/// Returns true if the match is decided within as many bytes as the expression has: anchored and without
/// repetition.
fn matches_a_beginning(pattern: &str) -> bool {
    pattern.starts_with('^') && !pattern.contains(['*', '+', '|']) && !pattern.contains(",}") && !pattern.contains("(?")
}

#[derive(Debug, Clone, Copy)]
struct Reach {
    expansions: u64,
    length: usize,
}

#[derive(Debug, Clone, Copy)]
enum Seen {
    Not,
    Open,
    Done(Reach),
}

/// Counts checks per value over the graph of references, visiting each subschema once.
struct Count<'a, 's> {
    walk: &'a Walk<'s>,
    seen: Vec<Seen>,
}

impl Count<'_, '_> {
    fn reach(&mut self, at: usize, depth: usize) -> Result<Reach, String> {
        match self.seen[at] {
            Seen::Done(reach) => return Ok(reach),
            Seen::Open => {
                return Err("a `$ref` leads back to itself without descending into the value".into());
            }
            Seen::Not => {}
        }
        if depth > MAX_CHAIN {
            return Err(format!("more than {MAX_CHAIN} subschemas follow from each other for one value"));
        }
        self.seen[at] = Seen::Open;
        let found = &self.walk.found[at];
        let target = found.reference.map(|reference| self.target(reference)).transpose()?;
        let mut reach = Reach { expansions: 1, length: 1 };
        for &next in found.in_place.iter().chain(target.iter()) {
            let below = self.reach(next, depth + 1)?;
            reach.expansions = reach.expansions.saturating_add(below.expansions);
            reach.length = reach.length.max(below.length + 1);
        }
        if reach.expansions > MAX_EXPANSIONS {
            return Err(format!(
                "its references repeat: one value would be checked against more than {MAX_EXPANSIONS} subschemas"
            ));
        }
        self.seen[at] = Seen::Done(reach);
        Ok(reach)
    }

    fn target(&self, reference: &str) -> Result<usize, String> {
        let pointer = unescape_percent(reference.trim_start_matches('#'));
        let known = self.walk.by_pointer.get(pointer.as_ref()).copied();
        known.ok_or_else(|| {
            let shown: String = reference.chars().take(100).collect();
            format!("`$ref` leads to no schema: `{shown}`")
        })
    }
}

fn unescape_percent(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return text.into();
    }
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let pair = [ahead.next().unwrap_or(0), ahead.next().unwrap_or(0)];
        let hex = std::str::from_utf8(&pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match (byte, hex) {
            (b'%', Some(hex)) => {
                decoded.push(hex);
                bytes = ahead;
            }
            (byte, _) => decoded.push(byte),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned().into()
}
