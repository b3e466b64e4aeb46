//! Validation of search requests: `input.retrieval` of the agent execution contract, and the arguments of
//! `search_dataset`.

use std::collections::BTreeMap;

use longhaul_sdk::numbers;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::normalize;

/// Code of every refusal.
pub const INVALID_RETRIEVAL_INPUT: &str = "invalid_retrieval_input";
/// Fixed message of the contract for this code.
pub const INVALID_RETRIEVAL_MESSAGE: &str = "retrieval must include a valid index, explicit or derived query text, \
     positive top_k, scalar filters, and valid search_method, query_preprocessing, and hybrid_alpha values when \
     provided";

/// Maximum results of one search. A result is a chunk of about a page, so a larger prompt would exceed most models.
pub const MAX_TOP_K: u32 = 100;
/// Maximum bytes of a query; no embeddings model reads a longer one whole.
pub const MAX_QUERY_BYTES: usize = 32 * 1024;
/// Maximum characters of an index name.
pub const MAX_INDEX_CHARS: usize = 128;
/// Maximum filters of one search; each adds a condition in the vector store.
pub const MAX_FILTERS: usize = 32;
/// Maximum characters of a filter key.
pub const MAX_FILTER_KEY_CHARS: usize = 128;
/// Maximum characters of a text value in a filter.
pub const MAX_FILTER_TEXT_CHARS: usize = 1_024;

const DEFAULT_TOP_K: u32 = 5;
const DEFAULT_ALPHA: f64 = 0.5;

/// Search method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchMethod {
    /// Distance of embeddings.
    #[default]
    Semantic,
    /// Keyword match.
    Keyword,
    /// Both, fused.
    Hybrid,
}

/// Preprocessing of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preprocessing {
    /// The query is used unchanged.
    #[default]
    None,
    /// Normalised with [`normalize()`].
    Normalize,
}

/// Value that a filter compares with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Value")]
pub enum FilterValue {
    Bool(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// An integer beyond 64 bits.
    LargeInt(serde_json::Number),
    /// A finite number with a fraction.
    Number(f64),
    Text(String),
}

/// Conditions on results: the value of every key must be equal.
pub type Filters = BTreeMap<String, FilterValue>;

/// A validated search request. All fields are within the bounds of this module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetrievalRequest {
    /// Index as the caller names it.
    pub index: String,
    /// Query before preprocessing.
    pub query: String,
    /// Number of requested results, 1 to [`MAX_TOP_K`].
    pub top_k: u32,
    pub search_method: SearchMethod,
    pub query_preprocessing: Preprocessing,
    /// Weight of the semantic side, 0 to 1. Set for hybrid searches only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hybrid_alpha: Option<f64>,
    pub filters: Filters,
}

/// Reason why a search request is refused. The code is always [`INVALID_RETRIEVAL_INPUT`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRetrieval {
    /// `retrieval` is not an object.
    #[error("retrieval must be an object")]
    NotAnObject,
    /// The index is missing, too long or not text.
    #[error("index must be a text of 1 to {MAX_INDEX_CHARS} characters")]
    Index,
    /// The query is empty, not text, or missing with none derivable.
    #[error("query must be a text that is not empty, given or derived from the prompt")]
    Query,
    /// The given or derived query is too long.
    #[error("query is {bytes} bytes long; at most {MAX_QUERY_BYTES} are searched for")]
    QueryTooLong {
        /// Length of the query.
        bytes: usize,
    },
    /// `top_k` is not an integer within bounds.
    #[error("top_k must be a whole number from 1 to {MAX_TOP_K}")]
    TopK,
    /// The search method is unknown.
    #[error("search_method must be semantic, keyword or hybrid")]
    SearchMethod,
    /// The preprocessing is unknown.
    #[error("query_preprocessing must be none or normalize")]
    Preprocessing,
    /// `hybrid_alpha` is not a number from 0 to 1.
    #[error("hybrid_alpha must be a number from 0 to 1")]
    HybridAlpha,
    /// The filters are not an object of scalars, too many or too long.
    #[error(
        "filters must be at most {MAX_FILTERS} texts, numbers or booleans under keys that are not blank, keys of at \
         most {MAX_FILTER_KEY_CHARS} and texts of at most {MAX_FILTER_TEXT_CHARS} characters"
    )]
    Filters,
}

impl InvalidRetrieval {
    /// Always [`INVALID_RETRIEVAL_INPUT`].
    #[must_use]
    pub fn code(&self) -> &'static str {
        INVALID_RETRIEVAL_INPUT
    }
}

impl RetrievalRequest {
    /// Parses `input.retrieval`; `None` if null or absent. `derived` supplies the query if none is given.
    ///
    /// # Errors
    /// The first problem found.
    pub fn read(
        retrieval: Option<&Value>,
        derived: impl FnOnce() -> Option<String>,
    ) -> Result<Option<Self>, InvalidRetrieval> {
        match retrieval {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(fields)) => Self::from_fields(fields, derived).map(Some),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Err(InvalidRetrieval::NotAnObject)
            }
        }
    }

    /// Parses the `retrieval` of a whole `input`. If it has no query, [`derived_query`] supplies one.
    ///
    /// # Errors
    /// Same as [`RetrievalRequest::read`].
    pub fn of_input(input: &Map<String, Value>) -> Result<Option<Self>, InvalidRetrieval> {
        Self::read(input.get("retrieval"), || derived_query(input))
    }

    fn from_fields(
        fields: &Map<String, Value>,
        derived: impl FnOnce() -> Option<String>,
    ) -> Result<Self, InvalidRetrieval> {
        let index = trimmed_text(fields.get("index")).ok_or(InvalidRetrieval::Index)?;
        if index.chars().count() > MAX_INDEX_CHARS || index.contains('\0') {
            return Err(InvalidRetrieval::Index);
        }
        let query = match fields.get("query") {
            None | Some(Value::Null) => derived(),
            given => trimmed_text(given),
        };
        let query = query.filter(|query| !query.contains('\0')).ok_or(InvalidRetrieval::Query)?;
        if query.len() > MAX_QUERY_BYTES {
            return Err(InvalidRetrieval::QueryTooLong { bytes: query.len() });
        }
        let top_k = read_top_k(fields.get("top_k")).ok_or(InvalidRetrieval::TopK)?;
        let filters = read_filters(fields.get("filters")).ok_or(InvalidRetrieval::Filters)?;
        let search_method = match word(fields.get("search_method")).as_deref() {
            Some("" | "semantic") => SearchMethod::Semantic,
            Some("keyword") => SearchMethod::Keyword,
            Some("hybrid") => SearchMethod::Hybrid,
            Some(_) | None => return Err(InvalidRetrieval::SearchMethod),
        };
        let query_preprocessing = match word(fields.get("query_preprocessing")).as_deref() {
            Some("" | "none") => Preprocessing::None,
            Some("normalize") => Preprocessing::Normalize,
            Some(_) | None => return Err(InvalidRetrieval::Preprocessing),
        };
        // Validated for hybrid searches only: callers send arbitrary defaults with the other methods.
        let hybrid_alpha = match search_method {
            SearchMethod::Hybrid => Some(read_alpha(fields.get("hybrid_alpha")).ok_or(InvalidRetrieval::HybridAlpha)?),
            SearchMethod::Semantic | SearchMethod::Keyword => None,
        };
        Ok(Self { index, query, top_k, search_method, query_preprocessing, hybrid_alpha, filters })
    }

    /// Returns the query that is embedded, searched and reported. Empty if normalisation removes everything.
    #[must_use]
    pub fn processed_query(&self) -> String {
        match self.query_preprocessing {
            Preprocessing::None => self.query.clone(),
            Preprocessing::Normalize => normalize(&self.query),
        }
    }
}

/// Derives a query from an execution's input: the prompt, or the last user message with text.
#[must_use]
pub fn derived_query(input: &Map<String, Value>) -> Option<String> {
    trimmed_text(input.get("prompt")).or_else(|| {
        let messages = input.get("messages")?.as_array()?;
        messages.iter().rev().filter(|message| is_of_user(message)).find_map(|message| text_of(message.get("content")?))
    })
}

fn is_of_user(message: &Value) -> bool {
    message.get("role").and_then(Value::as_str).is_some_and(|role| role.trim().eq_ignore_ascii_case("user"))
}

/// Text of a message's content; text parts are joined by line breaks.
fn text_of(content: &Value) -> Option<String> {
    if let Value::Array(parts) = content {
        let is_text = |part: &&Value| {
            part.get("type").and_then(Value::as_str).is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text"))
        };
        let texts: Vec<String> =
            parts.iter().filter(is_text).filter_map(|part| trimmed_text(part.get("text"))).collect();
        return (!texts.is_empty()).then(|| texts.join("\n"));
    }
    trimmed_text(Some(content))
}

fn trimmed_text(value: Option<&Value>) -> Option<String> {
    let text = value?.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns true if the request names no search method: absent or empty (`null`, `false`, `0`, `""`, `[]`, `{}`).
#[must_use]
pub fn leaves_method_open(search_method: Option<&Value>) -> bool {
    word(search_method).is_some_and(|word| word.is_empty())
}

/// Trims and lowercases a word. Empty if absent or an empty value; `None` for any other value that is not text.
fn word(value: Option<&Value>) -> Option<String> {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => Some(String::new()),
        Some(Value::String(text)) => Some(text.trim().to_lowercase()),
        Some(Value::Number(number)) if number.as_f64() == Some(0.0) => Some(String::new()),
        Some(Value::Array(items)) if items.is_empty() => Some(String::new()),
        Some(Value::Object(fields)) if fields.is_empty() => Some(String::new()),
        Some(Value::Bool(true) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => None,
    }
}

/// Parses an integer, a fraction (truncated) or an integer as text.
fn read_top_k(value: Option<&Value>) -> Option<u32> {
    let top_k = match value {
        None | Some(Value::Null) => DEFAULT_TOP_K,
        Some(Value::Number(number)) => match number.as_u64() {
            Some(whole) => u32::try_from(whole).ok()?,
            // The range also rejects negative and non-finite numbers. Truncates like the contract's engine: 2.9
            // becomes 2.
            None => number.as_f64().filter(|number| (1.0..=f64::from(MAX_TOP_K) + 1.0).contains(number))? as u32,
        },
        Some(Value::String(text)) => text.trim().parse().ok()?,
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => return None,
    };
    (1..=MAX_TOP_K).contains(&top_k).then_some(top_k)
}

/// Parses a number from 0 to 1, also as text; `true` and `false` count as 1 and 0, as in the contract's engine.
fn read_alpha(value: Option<&Value>) -> Option<f64> {
    let alpha = match value {
        None | Some(Value::Null) => DEFAULT_ALPHA,
        Some(Value::Bool(flag)) => f64::from(u8::from(*flag)),
        Some(Value::Number(number)) => number.as_f64()?,
        Some(Value::String(text)) if text.is_empty() => DEFAULT_ALPHA,
        Some(Value::String(text)) => text.trim().parse().ok()?,
        Some(Value::Array(_) | Value::Object(_)) => return None,
    };
    // The range also rejects NaN.
    (0.0..=1.0).contains(&alpha).then_some(alpha)
}

fn read_filters(value: Option<&Value>) -> Option<Filters> {
    let fields = match value {
        None | Some(Value::Null) => return Some(Filters::new()),
        Some(Value::Object(fields)) if fields.len() <= MAX_FILTERS => fields,
        Some(_) => return None,
    };
    let mut filters = Filters::new();
    for (key, value) in fields {
        let key = key.trim();
        if key.is_empty() || key.chars().count() > MAX_FILTER_KEY_CHARS || key.contains('\0') {
            return None;
        }
        filters.insert(key.to_owned(), read_filter(value)?);
    }
    Some(filters)
}

impl TryFrom<Value> for FilterValue {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        read_filter(&value).ok_or("a filter is a text, a number or a boolean")
    }
}

fn read_filter(value: &Value) -> Option<FilterValue> {
    match value {
        Value::Bool(flag) => Some(FilterValue::Bool(*flag)),
        Value::Number(_) if numbers::check(value).is_err() => None,
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Some(FilterValue::Int(whole)),
            None if !number.as_str().contains(['.', 'e']) => Some(FilterValue::LargeInt(number.clone())),
            None => number.as_f64().filter(|number| number.is_finite()).map(FilterValue::Number),
        },
        Value::String(text) if text.chars().count() <= MAX_FILTER_TEXT_CHARS && !text.contains('\0') => {
            Some(FilterValue::Text(text.clone()))
        }
        Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests;
