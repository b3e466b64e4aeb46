
mod messages;
pub mod request;

pub use request::{AguiRequest, Resume};
