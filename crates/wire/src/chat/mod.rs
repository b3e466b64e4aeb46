
mod messages;
pub mod request;

pub use request::ChatRequest;
