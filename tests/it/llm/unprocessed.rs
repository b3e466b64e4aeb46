//! Requests that an HTTP/2 server declares unprocessed: by refusing a stream, or by leaving a connection (GOAWAY).

use std::{
    io,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    http::{HeaderMap, Response, header::CONTENT_TYPE},
};
use bytes::Bytes;
use h2::Reason;
use longhaul_llm::{Message, ModelError};
use longhaul_testkit::http_server::{self, HangUp, HttpServer, Protocol};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tokio_util::task::AbortOnDropHandle;

use super::{REPLY, ask, spec, trusting};

/// Asks a server that resets the first `refused` streams with `reason`. Returns the outcome and the requests it
/// saw.
async fn asked_in_spite_of(
    reason: h2::Reason,
    refused: usize,
) -> (Result<String, ModelError>, Vec<(HeaderMap, Bytes)>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seeing = seen.clone();
    let answer = move |headers: HeaderMap, body: Bytes| {
        let mut seen = seeing.lock().unwrap();
        seen.push((headers, body));
        let is_refused = seen.len() <= refused;
        let reply = ([(CONTENT_TYPE, "application/json")], REPLY);
        std::future::ready(if is_refused { Err(HangUp { reset: Some(reason) }) } else { Ok(reply) })
    };
    let server = HttpServer::start(Protocol::Http2, Router::new().fallback(answer));
    let server = server.await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ca_file = dir.path().join("ca.pem");
    std::fs::write(&ca_file, server.certificate().unwrap()).unwrap();
    let client = trusting(server.url(), Some(ca_file)).unwrap();
    let reply = ask(&client, &spec(false), &[Message::user("yes?")]).await.0;
    let seen = seen.lock().unwrap().clone();
    (reply.map(|reply| reply.message.text().into_owned()), seen)
}

#[tokio::test]
async fn refused_stream_is_sent_again_unchanged() {
    let (reply, seen) = asked_in_spite_of(h2::Reason::REFUSED_STREAM, 2).await;
    assert_eq!(reply.unwrap(), "yes");
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|sent| *sent == seen[0]), "{seen:?}");
    let (headers, body) = &seen[0];
    assert!(headers.contains_key("idempotency-key") && !body.is_empty(), "{seen:?}");
}

#[tokio::test]
async fn refused_streams_are_retried_at_most_twice() {
    let (reply, seen) = asked_in_spite_of(h2::Reason::REFUSED_STREAM, usize::MAX).await;
    assert!(matches!(reply, Err(ModelError::Unreachable { .. })), "{reply:?}");
    assert_eq!(seen.len(), 3);
}

#[tokio::test]
async fn possibly_processed_stream_is_not_sent_again() {
    let (reply, seen) = asked_in_spite_of(h2::Reason::INTERNAL_ERROR, 1).await;
    assert!(matches!(reply, Err(ModelError::Unreachable { .. })), "{reply:?}");
    assert_eq!(seen.len(), 1);
}

const FRAME_HEADER_BYTES: usize = 9;
const PREFACE_BYTES: usize = 24;
const TYPE_HEADERS: u8 = 1;
const TYPE_SETTINGS: u8 = 4;
const TYPE_GOAWAY: u8 = 7;

/// An HTTP/2 frame, RFC 9113 section 4.1.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, 0, 0, 0, 0, 0], payload].concat()
}

/// Takes one request on a new connection and leaves it with GOAWAY: the last stream it may have processed, and the
/// reason.
async fn leave(mut stream: impl AsyncRead + AsyncWrite + Unpin, last_processed: u32, reason: Reason) -> io::Result<()> {
    stream.write_all(&frame(TYPE_SETTINGS, &[])).await?;
    stream.read_exact(&mut [0; PREFACE_BYTES]).await?;
    let mut header = [0; FRAME_HEADER_BYTES];
    while header[3] != TYPE_HEADERS {
        stream.read_exact(&mut header).await?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        stream.read_exact(&mut vec![0; usize::try_from(length).unwrap()]).await?;
    }
    let payload = [last_processed.to_be_bytes(), u32::from(reason).to_be_bytes()].concat();
    stream.write_all(&frame(TYPE_GOAWAY, &payload)).await?;
    stream.shutdown().await
}

/// Answers the requests of one connection.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(request) = connection.accept().await {
        let (_, mut respond) = request?;
        respond.send_response(Response::new(()), false)?.send_data(REPLY.into(), true)?;
    }
    Ok(())
}

/// Asks a server that leaves its first connection. Returns the outcome and the number of connections.
async fn asked_although_it_leaves(last_processed: u32, reason: Reason) -> (Result<String, ModelError>, usize) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let (tls, certificate) = http_server::tls(b"h2").unwrap();
    let opened = Arc::new(AtomicUsize::new(0));
    let opening = opened.clone();
    let _serving = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = tls.accept(stream).await.unwrap();
            if opening.fetch_add(1, Ordering::Relaxed) == 0 {
                leave(stream, last_processed, reason).await.unwrap();
            } else {
                answer(stream).await.unwrap();
            }
        }
    }));
    let dir = tempfile::tempdir().unwrap();
    let ca_file = dir.path().join("ca.pem");
    std::fs::write(&ca_file, certificate).unwrap();
    let client = trusting(url, Some(ca_file)).unwrap();
    let reply = ask(&client, &spec(false), &[Message::user("yes?")]).await.0;
    (reply.map(|reply| reply.message.text().into_owned()), opened.load(Ordering::Relaxed))
}

#[tokio::test]
async fn unprocessed_request_is_sent_over_another_connection() {
    let (reply, connections) = asked_although_it_leaves(0, Reason::NO_ERROR).await;
    assert_eq!((reply.unwrap().as_str(), connections), ("yes", 2));
}

#[tokio::test]
async fn goaway_after_processing_is_not_sent_again() {
    for (last_processed, reason) in [(1, Reason::NO_ERROR), (0, Reason::INTERNAL_ERROR)] {
        let (reply, connections) = asked_although_it_leaves(last_processed, reason).await;
        assert!(matches!(reply, Err(ModelError::Unreachable { .. })), "{reason:?}: {reply:?}");
        assert_eq!(connections, 1, "{reason:?}");
    }
}
