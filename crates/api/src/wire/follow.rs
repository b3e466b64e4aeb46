//! Follows a run to the end of its answer, as one object or as a stream.
//!
//! A stream that cannot be told to its end breaks its connection: to the clients of these wires, a stream that just
//! ends is a complete one.

use std::{collections::VecDeque, io, time::Duration};

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{Stream, stream};
use longhaul_wire::{Broken, Fault, FaultKind, Frame, Moment, Render};
use tokio::time::Instant;

use super::{
    delivery::{Delivery, Unstored},
    moments::{Moments, Next},
    refused::{Answer, Refused},
};

/// Silence after which a comment keeps the connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time for which the head of a stream waits for the run to say something: a run that fails at once is answered with an
/// error, which clients understand better than a broken stream.
const HEAD_WAIT: Duration = Duration::from_secs(10);
const NO_BUFFER: HeaderName = HeaderName::from_static("x-accel-buffering");

/// An answer under way.
pub(super) struct Following {
    pub(super) moments: Moments,
    pub(super) render: Box<dyn Render>,
    /// Absent outside of a durable run.
    pub(super) delivery: Option<Delivery>,
    /// Present for a run that is not stored.
    pub(super) unstored: Option<Unstored>,
}

impl Following {
    /// The answer as its caller asked for it.
    ///
    /// # Errors
    /// As those of [`Self::whole`] and [`Self::stream`].
    pub(super) async fn answer(self, is_streamed: bool) -> Answer<Response> {
        if is_streamed { self.stream(0).await } else { self.whole().await }
    }

    /// The whole answer as one object.
    ///
    /// # Errors
    /// The run failed, on a wire whose answers cannot say so; or this process cannot tell its end.
    pub(super) async fn whole(mut self) -> Answer<Response> {
        self.render.begin();
        while !self.render.is_over() && self.render.failure().is_none() {
            let Next::Moment(moment, at) = self.moments.next().await? else { return Err(gone()) };
            // Nothing was sent yet that a later moment could contradict.
            let _ = self.render.push(&moment, at);
        }
        if let Some(fault) = self.render.failure() {
            return Err(fault.into());
        }
        let body = self.render.object().to_string();
        let body = match self.delivery {
            Some(delivery) => delivery.of_whole(body).await?,
            None => Body::from(body),
        };
        let mut response = body.into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    /// The answer as a stream, without its first `skip` frames.
    ///
    /// # Errors
    /// The run failed before it said anything, on a wire whose answers cannot say so.
    pub(super) async fn stream(self, skip: usize) -> Answer<Response> {
        let mut telling = Telling::new(self, skip, Kind::Events);
        telling.head().await?;
        let chunks = stream::unfold(telling, |mut telling| async { telling.next().await.map(|sent| (sent, telling)) });
        let mut response = Body::from_stream(chunks).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(NO_BUFFER, HeaderValue::from_static("no"));
        Ok(response)
    }

    /// The frames of the answer for a web socket. The next one is asked for when the last one was sent.
    pub(super) fn frames(self) -> impl Stream<Item = Told> + Send {
        let telling = Telling::new(self, 0, Kind::Frames);
        stream::unfold(telling, |mut telling| async { telling.told().await.map(|told| (told, telling)) })
    }
}

/// One thing that a reader of a stream gets.
#[derive(Debug)]
pub(super) enum Told {
    Frame(Frame),
    /// Nothing was said for [`KEEP_ALIVE`].
    Silence,
    /// The stream cannot be told to its end.
    Cut,
}

/// The form of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Events,
    /// Messages of a web socket: without the mark that ends a stream of events, which has no name.
    Frames,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Going,
    /// All frames are ready.
    Ending,
    /// The connection breaks after what is ready.
    Breaking,
    Ended,
}

/// A stream under way.
struct Telling {
    following: Following,
    ready: VecDeque<Frame>,
    /// Frames that the reader has.
    skip: usize,
    kind: Kind,
    state: State,
}

impl Telling {
    fn new(following: Following, skip: usize, kind: Kind) -> Self {
        let mut telling = Self { following, ready: VecDeque::new(), skip, kind, state: State::Going };
        let frames = telling.following.render.begin();
        telling.add(frames);
        telling
    }

    /// Waits for the first moment that says something, for a while, on a wire whose streams cannot tell of a failure.
    async fn head(&mut self) -> Answer<()> {
        if self.following.render.failure_is_told() {
            return Ok(());
        }
        let until = Instant::now() + HEAD_WAIT;
        while let Some(next) = self.following.moments.next_until(until).await? {
            let Next::Moment(moment, at) = next else { return Err(gone()) };
            self.take(&moment, at);
            match self.following.render.failure() {
                Some(fault) => return Err(fault.into()),
                None if moment != Moment::Started => break,
                None => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, moment: &Moment, at: i64) {
        match self.following.render.push(moment, at) {
            Ok(frames) => self.add(frames),
            Err(Broken { frames }) => {
                self.add(frames);
                self.state = State::Breaking;
            }
        }
        if self.state == State::Going && self.following.render.is_over() {
            self.state = State::Ending;
        }
    }

    fn add(&mut self, frames: Vec<Frame>) {
        let is_told = |frame: &Frame| self.kind == Kind::Events || frame.event.is_some();
        for frame in frames.into_iter().filter(is_told) {
            // The mark of the end has no number: without it a stream is not whole.
            if self.skip == 0 || frame.data == "[DONE]" {
                self.ready.push_back(frame);
            } else {
                self.skip -= 1;
            }
        }
    }

    /// The next bytes; an error breaks the connection.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        Some(match self.told().await? {
            Told::Frame(frame) => Ok(Bytes::from(frame.to_bytes())),
            Told::Silence => Ok(Bytes::from_static(b": keep-alive\n\n")),
            Told::Cut => Err(io::Error::other("the answer cannot be told to its end")),
        })
    }

    async fn told(&mut self) -> Option<Told> {
        loop {
            let is_last = self.state == State::Ending && self.ready.len() <= 1;
            if is_last && self.begin_delivery().await.is_err() {
                self.state = State::Breaking;
                self.ready.clear();
            }
            if let Some(frame) = self.ready.pop_front() {
                return Some(Told::Frame(frame));
            }
            match self.state {
                State::Going => {}
                State::Ending => {
                    // Everything before was taken by the connection.
                    if let Some(delivery) = &mut self.following.delivery {
                        delivery.complete();
                    }
                    self.state = State::Ended;
                }
                State::Breaking => {
                    self.state = State::Ended;
                    return Some(Told::Cut);
                }
                State::Ended => return None,
            }
            if self.state == State::Going {
                match self.following.moments.next_until(Instant::now() + KEEP_ALIVE).await {
                    Ok(None) => return Some(Told::Silence),
                    Ok(Some(Next::Moment(moment, at))) => self.take(&moment, at),
                    Ok(Some(Next::Gone)) => self.state = State::Breaking,
                    Err(error) => {
                        tracing::warn!(error = ?error, "the record of a run cannot be read");
                        self.state = State::Breaking;
                    }
                }
            }
        }
    }

    /// Counts the answer as delivered before its last frame leaves, so that the caller's next request, at any process,
    /// is a new call.
    async fn begin_delivery(&mut self) -> Answer<()> {
        match &mut self.following.delivery {
            Some(delivery) => delivery.begin().await,
            None => Ok(()),
        }
    }
}

/// The answer to a caller whose run goes on, or is gone, while this process cannot tell more of it.
pub(super) fn gone() -> Refused {
    let message = "this process stops, or was asked for more streams than it has; the run goes on: ask again";
    Fault { kind: FaultKind::Unavailable, message: message.into(), param: None, code: Some("unavailable".into()) }
        .into()
}
