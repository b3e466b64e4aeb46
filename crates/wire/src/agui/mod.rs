//! AG-UI 1.0: requests and streams.

mod messages;
pub mod request;
mod shown;
pub mod stream;

pub use request::{AguiRequest, Resume};
pub use stream::{Header, Stream};
