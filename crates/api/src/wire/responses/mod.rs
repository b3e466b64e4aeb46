//! `/v1/responses`: `OpenAI`'s newer wire.

mod chain;
mod compact;
mod create;
mod found;
mod kept;
mod read;
mod socket;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::state::ApiState;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(create::create, socket::connect))
        .routes(routes!(create::input_tokens))
        .routes(routes!(compact::compact))
        .routes(routes!(read::get, read::delete))
        .routes(routes!(read::cancel))
        .routes(routes!(read::input_items))
}
