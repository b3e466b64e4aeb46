
mod blocks;
pub mod fault;
pub mod request;

pub use request::MessagesRequest;
