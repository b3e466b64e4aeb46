//! Anthropic's messages: requests, objects and streams.

mod blocks;
pub mod fault;
pub mod request;
pub mod stream;

pub use request::MessagesRequest;
pub use stream::Stream;
