//! The OpenAPI document and its viewer, which loads nothing from other hosts.

use axum::{
    Json,
    http::header,
    response::{Html, IntoResponse, Response},
};
use rust_embed::RustEmbed;

use crate::{error::ApiError, extract::Path};

#[derive(RustEmbed)]
#[folder = "assets/"]
struct Assets;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; frame-ancestors 'none'";
const PAGE: &str = r##"<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Longhaul API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<script type="module" src="/docs/rapidoc-min.js"></script></head>
<body><rapi-doc spec-url="/openapi.json" render-style="read" load-fonts="false" show-header="false"
  allow-server-selection="false" regular-font="system-ui, sans-serif" mono-font="ui-monospace, monospace"></rapi-doc>
<noscript>The document itself is at <a href="/openapi.json">/openapi.json</a>.</noscript></body></html>
"##;

pub(crate) async fn openapi_json() -> impl IntoResponse {
    Json(crate::openapi())
}

pub(crate) async fn viewer() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, POLICY)], Html(PAGE))
}

pub(crate) async fn asset(Path(name): Path<String>) -> Result<Response, ApiError> {
    let file = Assets::get(&name).ok_or(ApiError::NoSuchRoute)?;
    let headers = [
        (header::CONTENT_TYPE, file.metadata.mimetype().to_owned()),
        (header::CACHE_CONTROL, "public, max-age=86400".to_owned()),
    ];
    Ok((headers, file.data.into_owned()).into_response())
}
