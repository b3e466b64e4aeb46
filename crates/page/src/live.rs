//! Sends a screen again when it has changed, as server-sent events. The page's script closes the stream while the
//! tab is hidden.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures::stream;
use longhaul_fairness::Share;
use tokio::time::sleep;

use crate::{PageState, asked::Asked, render};

/// Least time between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// A screen that takes long to read is read less often: a look takes a hundredth of the time, or [`SLOWEST`] passes;
/// but never more than a tenth of the time.
const SHARE: u32 = 100;
const LARGEST_SHARE: u32 = 10;
const SLOWEST: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

struct Following {
    state: PageState,
    asked: Asked,
    sent: String,
    pause: Duration,
    place: Share<String>,
}

/// Follows a screen until its visitor leaves, may no longer see it, or another tenant needs the place.
pub(crate) async fn follow(state: PageState, asked: Asked) -> Response {
    let viewer = state.read(&asked.visitor, "/v1/whoami").await;
    let place = viewer.ok().and_then(|viewer| state.live.take_over(viewer["tenant"].to_string()));
    let Some(place) = place else {
        // 204 ends an EventSource: this screen stays as it is.
        return axum::http::StatusCode::NO_CONTENT.into_response();
    };
    let first = Following { state, asked, sent: String::new(), pause: Duration::ZERO, place };
    Sse::new(stream::unfold(first, next)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Waits until the screen has changed.
async fn next(mut following: Following) -> Option<(Result<Event, Infallible>, Following)> {
    loop {
        tokio::select! {
            biased;
            () = following.place.asked_back() => return None,
            () = sleep(following.pause) => {}
        }
        let began = Instant::now();
        let values = following.asked.values(&following.state).await.ok()?;
        let main = render::main(following.asked.screen.template, &values);
        let took = began.elapsed();
        following.pause = (took * SHARE).clamp(LOOK, SLOWEST).max(took * LARGEST_SHARE);
        if main != following.sent {
            let event = Event::default().event("main").data(&main);
            following.sent = main;
            return Some((Ok(event), following));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::{
        Json, Router,
        body::{Body, HttpBody as _},
        extract::Request,
        http::{StatusCode, header},
    };
    use longhaul_fairness::FairShare;
    use serde_json::json;

    use super::*;
    use crate::{PageOptions, Shared, screens::SCREENS};

    /// A page with two places over an API on which the key is the tenant's name.
    fn page() -> PageState {
        let answer = async |request: Request| {
            let key = request.headers().get(header::AUTHORIZATION).map(|key| key.to_str().unwrap().to_owned());
            Json(json!({"tenant": {"org_id": key}}))
        };
        let api = Router::new().fallback(answer);
        PageState(Arc::new(Shared { api, options: PageOptions::default(), live: FairShare::new(2) }))
    }

    async fn open(page: &PageState, tenant: &str) -> Response {
        let screen = SCREENS.iter().find(|screen| screen.path == "/executions").unwrap();
        let request = Request::builder().uri("/executions").header(header::AUTHORIZATION, tenant);
        follow(page.clone(), Asked::new(screen, &request.body(Body::empty()).unwrap())).await
    }

    #[tokio::test]
    async fn full_screens_make_room_for_another_tenant() {
        let page = page();
        let (oldest, newest) = (open(&page, "a").await, open(&page, "a").await);
        assert_eq!(open(&page, "a").await.status(), StatusCode::NO_CONTENT);
        let of_b = open(&page, "b").await;
        assert_eq!(of_b.status(), StatusCode::OK);
        assert_eq!(open(&page, "b").await.status(), StatusCode::NO_CONTENT, "it has its share");
        assert_eq!(page.live.holders().len(), 2);
        // The oldest screen of a ends, and takes no place with it.
        axum::body::to_bytes(oldest.into_body(), usize::MAX).await.unwrap();
        assert_eq!(page.live.used(), 2);
        assert!(!newest.into_body().is_end_stream());
    }
}
