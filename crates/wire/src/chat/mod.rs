//! OpenAI's chat completions: requests, objects and streams.

pub mod fault;
mod messages;
pub mod request;
pub mod stream;

pub use request::ChatRequest;
pub use stream::Stream;
