//! What a caller may ask of retrieval: `input.retrieval` of the agent execution contract, and the arguments of `search_dataset`.

use std::collections::BTreeMap;

use longhaul_sdk::numbers;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::normalize;

/// The code of every refusal.
pub const INVALID_RETRIEVAL_INPUT: &str = "invalid_retrieval_input";
/// The contract's fixed message for it.
pub const INVALID_RETRIEVAL_MESSAGE: &str = "retrieval must include a valid index, explicit or derived query text, positive top_k, \
     scalar filters, and valid search_method, query_preprocessing, and hybrid_alpha values when provided";

/// Results of one search. A result is a chunk of about a page, so more of them than this is a larger prompt than most models take.
pub const MAX_TOP_K: u32 = 100;
/// No embeddings model reads a longer query whole.
pub const MAX_QUERY_BYTES: usize = 32 * 1024;
/// Longest name of an index.
pub const MAX_INDEX_CHARS: usize = 128;
/// Filters of one search; each is one more condition for the vector store.
pub const MAX_FILTERS: usize = 32;
/// Longest key of a filter.
pub const MAX_FILTER_KEY_CHARS: usize = 128;
/// Longest text a filter compares with.
pub const MAX_FILTER_TEXT_CHARS: usize = 1_024;

const DEFAULT_TOP_K: u32 = 5;
const DEFAULT_ALPHA: f64 = 0.5;

/// How an index is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchMethod {
    /// By the distance of embeddings.
    #[default]
    Semantic,
    /// By words.
    Keyword,
    /// Both, fused.
    Hybrid,
}

/// What is done to the query before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preprocessing {
    /// Nothing.
    #[default]
    None,
    /// See [`normalize()`].
    Normalize,
}

/// What a filter compares with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, try_from = "Value")]
pub enum FilterValue {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number beyond 64 bits.
    LargeInt(serde_json::Number),
    /// A number with a fraction; finite.
    Number(f64),
    /// A text.
    Text(String),
}

/// What results must have: every key equal to its value.
pub type Filters = BTreeMap<String, FilterValue>;

/// One search, checked. Its fields are within the bounds of this module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetrievalRequest {
    /// The index as the caller names it.
    pub index: String,
    /// What is searched for, before preprocessing.
    pub query: String,
    /// Results wanted; 1 to [`MAX_TOP_K`].
    pub top_k: u32,
    /// How.
    pub search_method: SearchMethod,
    /// What is done to the query first.
    pub query_preprocessing: Preprocessing,
    /// The weight of the semantic side, 0 to 1; present for hybrid searches alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hybrid_alpha: Option<f64>,
    /// What results must have.
    pub filters: Filters,
}

/// Why a search is refused before anything is asked. The code is always [`INVALID_RETRIEVAL_INPUT`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRetrieval {
    /// `retrieval` is not an object.
    #[error("retrieval must be an object")]
    NotAnObject,
    /// No index, or one that is too long or not text.
    #[error("index must be a text of 1 to {MAX_INDEX_CHARS} characters")]
    Index,
    /// No query and nothing to derive one from, or an empty one, or one that is not text.
    #[error("query must be a text that is not empty, given or derived from the prompt")]
    Query,
    /// A query, given or derived, that is too long.
    #[error("query is {bytes} bytes long; at most {MAX_QUERY_BYTES} are searched for")]
    QueryTooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not a whole number within bounds.
    #[error("top_k must be a whole number from 1 to {MAX_TOP_K}")]
    TopK,
    /// Unknown.
    #[error("search_method must be semantic, keyword or hybrid")]
    SearchMethod,
    /// Unknown.
    #[error("query_preprocessing must be none or normalize")]
    Preprocessing,
    /// Not a number from 0 to 1.
    #[error("hybrid_alpha must be a number from 0 to 1")]
    HybridAlpha,
    /// Not an object of scalars, or too many or too long.
    #[error(
        "filters must be at most {MAX_FILTERS} texts, numbers or booleans under keys that are not blank, keys of at most \
         {MAX_FILTER_KEY_CHARS} and texts of at most {MAX_FILTER_TEXT_CHARS} characters"
    )]
    Filters,
}

impl InvalidRetrieval {
    /// [`INVALID_RETRIEVAL_INPUT`], whatever is wrong.
    #[must_use]
    pub fn code(&self) -> &'static str {
        INVALID_RETRIEVAL_INPUT
    }
}

impl RetrievalRequest {
    /// Reads `input.retrieval`; null and absent are none. `derived` is asked for a query when none is given.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
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

    /// Reads the `retrieval` of an execution's whole `input`, its query derived by [`derived_query`] where none is given.
    ///
    /// # Errors
    /// See [`RetrievalRequest::read`].
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
        // Garbage beside another method is not looked at: callers send their default along with everything.
        let hybrid_alpha = match search_method {
            SearchMethod::Hybrid => Some(read_alpha(fields.get("hybrid_alpha")).ok_or(InvalidRetrieval::HybridAlpha)?),
            SearchMethod::Semantic | SearchMethod::Keyword => None,
        };
        Ok(Self { index, query, top_k, search_method, query_preprocessing, hybrid_alpha, filters })
    }

    /// The query as it is embedded, searched for and reported. Empty when normalisation left nothing of it.
    #[must_use]
    pub fn processed_query(&self) -> String {
        match self.query_preprocessing {
            Preprocessing::None => self.query.clone(),
            Preprocessing::Normalize => normalize(&self.query),
        }
    }
}

/// The query that an execution's input implies: its prompt, else the text of its last user message that has one.
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

/// The text of a message's content, its text parts joined by line breaks.
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

/// A word, trimmed and in small letters; empty when it is absent or as good as that (`null`, `false`, `0`, `""`, `[]`, `{}`).
/// Whether the fields of a request leave the method of search to others.
#[must_use]
pub fn leaves_method_open(search_method: Option<&Value>) -> bool {
    word(search_method).is_some_and(|word| word.is_empty())
}

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

/// Whole numbers, fractions cut off, and texts that are whole numbers.
fn read_top_k(value: Option<&Value>) -> Option<u32> {
    let top_k = match value {
        None | Some(Value::Null) => DEFAULT_TOP_K,
        Some(Value::Number(number)) => match number.as_u64() {
            Some(whole) => u32::try_from(whole).ok()?,
            // Also refuses what is negative or not finite. Cut off like the contract's engine does: 2.9 is 2.
            None => number.as_f64().filter(|number| (1.0..=f64::from(MAX_TOP_K) + 1.0).contains(number))? as u32,
        },
        Some(Value::String(text)) => text.trim().parse().ok()?,
        Some(Value::Bool(_) | Value::Array(_) | Value::Object(_)) => return None,
    };
    (1..=MAX_TOP_K).contains(&top_k).then_some(top_k)
}

/// A number from 0 to 1; also as text, and `true` and `false` for 1 and 0, as the contract's engine reads them.
fn read_alpha(value: Option<&Value>) -> Option<f64> {
    let alpha = match value {
        None | Some(Value::Null) => DEFAULT_ALPHA,
        Some(Value::Bool(flag)) => f64::from(u8::from(*flag)),
        Some(Value::Number(number)) => number.as_f64()?,
        Some(Value::String(text)) if text.is_empty() => DEFAULT_ALPHA,
        Some(Value::String(text)) => text.trim().parse().ok()?,
        Some(Value::Array(_) | Value::Object(_)) => return None,
    };
    // NaN is in no range.
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
