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
use tokio::{sync::OwnedSemaphorePermit, time::sleep};

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
    _permit: OwnedSemaphorePermit,
}

/// Follows a screen until its visitor leaves or may no longer see it.
pub(crate) fn follow(state: PageState, asked: Asked) -> Response {
    let Ok(permit) = state.live.clone().try_acquire_owned() else {
        // 204 ends an EventSource: this screen stays as it is.
        return axum::http::StatusCode::NO_CONTENT.into_response();
    };
    let first = Following { state, asked, sent: String::new(), pause: Duration::ZERO, _permit: permit };
    Sse::new(stream::unfold(first, next)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Waits until the screen has changed.
async fn next(mut following: Following) -> Option<(Result<Event, Infallible>, Following)> {
    loop {
        sleep(following.pause).await;
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
