//! The wires of other clients: `OpenAI`'s responses and chat completions, Anthropic's messages, AG-UI.
//!
//! A request is parsed by the crate `longhaul-wire` and becomes an execution (`start.rs`, `plan.rs`), or goes on in one
//! that waits for it (`resume.rs`). Its record is read as moments (`moments.rs`), which the wire's renderer makes an
//! object or a stream (`follow.rs`). In a durable run the answer may be one that is recorded (`place.rs`,
//! `delivery.rs`). See docs/design/wires.md.

mod agui;
mod body;
mod chat;
mod delivery;
mod follow;
mod ids;
mod messages;
mod models;
mod moments;
mod names;
mod parts;
pub(crate) mod place;
mod plan;
mod record;
mod refused;
mod responses;
mod resume;
mod start;
mod waits;

use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use models::with_slash as model_with_slash;
pub(crate) use refused::around;

use crate::state::ApiState;

/// Beginnings of the paths of the wires.
pub(crate) const PATHS: [&str; 5] = ["/v1/agui", "/v1/chat/", "/v1/messages", "/v1/models", "/v1/responses"];

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(models::list))
        .routes(routes!(models::get))
        .routes(routes!(chat::create))
        .routes(routes!(messages::create))
        .routes(routes!(messages::count_tokens))
        .merge(responses::routes())
        .routes(routes!(agui::run))
        .routes(routes!(agui::follow))
}
