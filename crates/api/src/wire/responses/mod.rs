//! `/v1/responses`: `OpenAI`'s newer wire.

mod chain;
mod compact;
mod create;
mod found;
mod kept;
mod read;
mod socket;

use longhaul_wire::{Frame, Moment, responses::Stream};
use serde_json::Value;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::render::{Broken, Render};
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

/// Responses say themselves that they failed.
struct Responses(Stream);

impl Render for Responses {
    fn begin(&mut self) -> Vec<Frame> {
        self.0.begin()
    }

    fn push(&mut self, moment: &Moment, at: i64) -> Result<Vec<Frame>, Broken> {
        Ok(self.0.push(moment, at))
    }

    fn object(&self) -> Value {
        self.0.object()
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn failure_is_told(&self) -> bool {
        true
    }
}
