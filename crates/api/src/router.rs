//! All routes of the API.

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware as axum_middleware,
    routing::{get, post},
};
use longhaul_page::PageOptions;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    audit,
    body::BODY_LIMIT,
    error::ApiError,
    kept_answers, middleware, oidc_session, page_session,
    routes::{
        accounts, audit as audit_routes, channels, contract, definitions, docs, executions, files, fleet, health,
        human_requests, indexes, keys, limits, memory, overview, platform, projects, providers, quarantine, runs,
        schedules, sessions, skills, usage, webhooks, whoami, workers, workers::remote,
    },
    state::ApiState,
    unread_body, wire,
};

pub(crate) fn described() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        // executions
        .routes(routes!(executions::submit::submit, executions::list::list))
        .routes(routes!(executions::batch::batch))
        .routes(routes!(overview::overview))
        .routes(routes!(usage::usage))
        .routes(routes!(executions::get::get))
        .routes(routes!(executions::steps::steps))
        .routes(routes!(executions::ledger::ledger))
        .routes(routes!(executions::waiting::waiting))
        .routes(routes!(executions::attempts::attempts))
        .routes(routes!(executions::events::events))
        .routes(routes!(executions::cancel::cancel))
        .routes(routes!(executions::retry::retry))
        .routes(routes!(executions::fork::fork))
        .routes(routes!(executions::budget::raise))
        .routes(routes!(executions::erase::erase))
        .routes(routes!(executions::artifacts::list))
        .routes(routes!(executions::artifacts::get))
        .routes(routes!(executions::signal::send))
        // files
        .routes(routes!(files::upload::upload))
        .routes(routes!(files::read::get, files::remove::remove))
        .routes(routes!(files::read::content))
        // people
        .routes(routes!(executions::tool_results::post))
        .routes(routes!(human_requests::list::approvals))
        .routes(routes!(human_requests::get::approval))
        .routes(routes!(human_requests::decide::decision))
        .routes(routes!(human_requests::list::questions))
        .routes(routes!(human_requests::get::question))
        .routes(routes!(human_requests::answer::answer))
        // sessions
        .routes(routes!(sessions::create::create, sessions::read::list))
        .routes(routes!(sessions::read::get, sessions::end::delete))
        .routes(routes!(sessions::messages::send, sessions::messages::list))
        .routes(routes!(sessions::events::follow))
        .routes(routes!(sessions::budget::raise))
        .routes(routes!(sessions::end::interrupt))
        .routes(routes!(sessions::end::end))
        .routes(routes!(sessions::chat::chat))
        // durable runs
        .routes(routes!(runs::create::create, runs::read::list))
        .routes(routes!(runs::read::get))
        .routes(routes!(runs::calls::list))
        .routes(routes!(runs::budget::raise))
        .routes(routes!(runs::end::end))
        .routes(routes!(runs::end::cancel))
        // schedules
        .routes(routes!(schedules::create::create, schedules::read::list))
        .routes(routes!(schedules::read::get, schedules::replace::replace, schedules::remove::remove))
        .routes(routes!(schedules::pause::pause))
        .routes(routes!(schedules::pause::resume))
        .routes(routes!(schedules::run::run))
        .routes(routes!(schedules::firings::list))
        // webhooks
        .routes(routes!(webhooks::create::create, webhooks::read::list))
        .routes(routes!(webhooks::read::get, webhooks::replace::replace, webhooks::remove::remove))
        .routes(routes!(webhooks::rotate::rotate))
        .routes(routes!(webhooks::deliveries::list))
        .routes(routes!(webhooks::redeliver::redeliver))
        .routes(routes!(webhooks::redeliver::test))
        .merge(project_routes())
        .merge(platform_routes())
        .merge(wire::routes())
        .merge(remote_routes())
}

/// Routes of the worker protocol.
fn remote_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(remote::register::register))
        .routes(routes!(remote::register::sign_off))
        .routes(routes!(remote::heartbeat::heartbeat))
        .routes(routes!(remote::claim::claim))
        .routes(routes!(remote::writes::writes))
        .routes(routes!(remote::ends::ends))
        .routes(routes!(remote::journal::journal))
        .routes(routes!(remote::requests::ask))
        .routes(routes!(remote::children::start))
        .routes(routes!(remote::children::wait))
        .routes(routes!(remote::signals::signals))
}

fn project_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(projects::create::create, projects::read::list))
        .routes(routes!(projects::read::get, projects::remove::delete))
        .routes(routes!(projects::plan::get, projects::plan::put))
        .routes(routes!(projects::control::approve))
        .routes(routes!(projects::control::pause))
        .routes(routes!(projects::control::resume))
        .routes(routes!(projects::control::go_on))
        .routes(routes!(projects::control::cancel))
        .routes(routes!(projects::budget::raise))
        .routes(routes!(projects::tasks::list))
        .routes(routes!(projects::tasks::get))
        .routes(routes!(projects::tasks::retry))
        .routes(routes!(projects::events::list))
}

/// Routes of what executions are made from, and of operation.
fn platform_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        // agents and definitions
        .routes(routes!(definitions::list::definitions))
        .routes(routes!(definitions::get::definition, definitions::put::definition))
        .routes(routes!(definitions::remove::definition))
        .routes(routes!(definitions::list::agents))
        .routes(routes!(definitions::get::agent, definitions::put::agent))
        .routes(routes!(definitions::remove::agent))
        // skills
        .routes(routes!(skills::read::list))
        .routes(routes!(skills::read::get, skills::put::put))
        .routes(routes!(skills::remove::remove))
        // memory
        .routes(routes!(memory::read::list, memory::forget::many))
        .routes(routes!(memory::search::search))
        .routes(routes!(memory::read::get, memory::put::put, memory::forget::one))
        // indexes
        .routes(routes!(indexes::list::list))
        .routes(routes!(indexes::get::get, indexes::remove::remove))
        .routes(routes!(indexes::search::search))
        .routes(routes!(indexes::documents::post::post, indexes::documents::list::list))
        .routes(routes!(indexes::documents::get::get, indexes::documents::remove::remove))
        // the agent-execution contract
        .routes(routes!(contract::internal::create, contract::internal::of_request))
        .routes(routes!(contract::stream::create))
        .routes(routes!(contract::internal::get))
        .routes(routes!(contract::public::create))
        .routes(routes!(contract::public::get))
        .routes(routes!(platform::get::platform, platform::put::platform))
        .routes(routes!(platform::remove::remove))
        // limits
        .routes(routes!(limits::list::list))
        .routes(routes!(limits::put::put, limits::remove::remove))
        // keys and accounts
        .routes(routes!(keys::create::create, keys::list::list))
        .routes(routes!(keys::rotate::rotate))
        .routes(routes!(keys::revoke::revoke))
        .routes(routes!(keys::holdings::holdings))
        .routes(routes!(accounts::list::list))
        .routes(routes!(accounts::disable::disable))
        .routes(routes!(accounts::disable::enable))
        .routes(routes!(audit_routes::list))
        // quarantine
        .routes(routes!(quarantine::list::list))
        .routes(routes!(quarantine::list::get))
        .routes(routes!(quarantine::release::release))
        // operation
        .routes(routes!(whoami::whoami))
        .routes(routes!(fleet::demand))
        .routes(routes!(fleet::offers))
        .routes(routes!(workers::read::list))
        .routes(routes!(workers::read::get))
        .routes(routes!(workers::drain::drain))
        .routes(routes!(providers::health))
        .routes(routes!(providers::reset))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}

pub(crate) fn router(state: ApiState) -> Router {
    let (router, _) = described().split_for_parts();
    let provider = state.oidc.as_ref().map(|provider| provider.label().to_owned());
    let page = PageOptions { provider, ..state.options.page.clone() };
    let (in_run, _) = wire::routes().split_for_parts();
    let api = router
        // The name of a model may hold a slash.
        .route("/v1/models/{provider}/{*id}", get(wire::model_with_slash))
        .nest("/runs/{run}/attempts/{attempt}", in_run)
        .route("/v1/internal/agent-executions/", get(contract::internal::no_id))
        .route("/health", get(contract::internal::health))
        .route("/openapi.json", get(docs::openapi_json))
        .route("/docs", get(docs::viewer))
        .route("/docs/{file}", get(docs::asset))
        .route("/v1/channels/slack", post(channels::slack::pressed))
        .route("/v1/channels/email/{ticket}", get(channels::email::ask).post(channels::email::decide))
        .route("/login", post(page_session::login))
        .route("/login/oidc", get(oidc_session::begin))
        .route("/login/oidc/callback", get(oidc_session::callback))
        .route("/logout", post(page_session::logout))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .fallback(async || ApiError::NoSuchRoute)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .layer(CatchPanicLayer::custom(middleware::on_panic))
        .layer(axum_middleware::from_fn_with_state(state.clone(), kept_answers::around))
        .layer(axum_middleware::from_fn_with_state(state.clone(), audit::around))
        .layer(axum_middleware::from_fn_with_state(state.clone(), contract::guard::around))
        .layer(axum_middleware::from_fn(wire::around))
        .layer(axum_middleware::from_fn(middleware::around))
        .layer(axum_middleware::from_fn(unread_body::drain))
        .with_state(state);
    // The page reads the API by its routes, as any other client.
    let page = longhaul_page::router(api.clone(), page).layer(axum_middleware::from_fn(middleware::around));
    api.merge(page)
}
