//! Style and scripts, compiled in.

use axum::{
    extract::Path,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "assets/"]
struct Assets;

/// Short hash of all assets, part of their addresses, so that browsers may keep them.
pub(crate) fn version() -> String {
    let hashes = Assets::iter().filter_map(|name| Assets::get(&name)).map(|file| file.metadata.sha256_hash());
    let mixed = hashes.fold([0_u8; 4], |sum, hash| std::array::from_fn(|i| sum[i] ^ hash[i]));
    u32::from_be_bytes(mixed).to_string()
}

/// `GET /assets/{file}`.
pub(crate) async fn serve(Path(name): Path<String>) -> Response {
    let Some(file) = Assets::get(&name) else { return StatusCode::NOT_FOUND.into_response() };
    let media_type = match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("svg") => "image/svg+xml",
        Some(_) | None => "text/plain; charset=utf-8",
    };
    let headers = [(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "private, max-age=31536000, immutable")];
    (headers, file.data).into_response()
}
