//! OpenAI's `/v1/responses`, by its own rules and those of Open Responses.

pub mod fault;
pub mod ids;

pub use ids::ResponseId;
