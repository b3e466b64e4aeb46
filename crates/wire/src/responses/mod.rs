//! OpenAI's `/v1/responses`, by its own rules and those of Open Responses: [`request`] reads what a client sends,
//! [`stream`] tells what happened as events, and [`object`] is the response as it stands.

pub mod compact;
pub mod fault;
pub mod ids;
pub mod items;
pub mod object;
pub mod request;
pub mod stream;

mod carried;
#[cfg(test)]
mod checker;
#[cfg(test)]
mod properties;

pub use ids::ResponseId;
pub use object::Header;
pub use request::Create;
pub use stream::Stream;
