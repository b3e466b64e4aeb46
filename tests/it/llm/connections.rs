//! Connections to model endpoints: as many concurrent calls as the worker holds over every HTTP version, and
//! certificates.

use std::{path::PathBuf, sync::Arc};

use axum::{Router, http::header::CONTENT_TYPE};
use futures::{StreamExt, stream::FuturesUnordered};
use longhaul_llm::{ChatModel, Message, ModelError, ModelsError};
use longhaul_testkit::{
    http_server::{HttpServer, Protocol},
    proxy::FaultProxy,
};
use tempfile::TempDir;
use tokio::sync::watch;

use super::{REPLY, ask, patient, spec, trusting};

/// More calls than two HTTP/2 connections carry.
const CALLS: usize = 230;

/// A server that answers no request until it is told to.
struct Gated {
    server: HttpServer,
    arrived: watch::Receiver<usize>,
    open: watch::Sender<bool>,
    dir: TempDir,
}

impl Gated {
    async fn start(protocol: Protocol) -> Self {
        let (arriving, arrived) = watch::channel(0);
        let (open, opened) = watch::channel(false);
        let answer = move || {
            let (arriving, mut opened) = (arriving.clone(), opened.clone());
            async move {
                arriving.send_modify(|count| *count += 1);
                let _ = opened.wait_for(|open| *open).await;
                ([(CONTENT_TYPE, "application/json")], REPLY)
            }
        };
        let server = HttpServer::start(protocol, Router::new().fallback(answer));
        Self { server: server.await.unwrap(), arrived, open, dir: tempfile::tempdir().unwrap() }
    }

    /// Writes the server's certificate to a file, if it has one.
    fn ca_file(&self) -> Option<PathBuf> {
        let certificate = self.server.certificate()?;
        Some(self.file(certificate))
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("ca.pem");
        std::fs::write(&path, text).unwrap();
        path
    }

    fn client(&self, ca_file: Option<PathBuf>) -> Result<Arc<dyn ChatModel>, ModelsError> {
        trusting(self.server.url(), ca_file)
    }
}

/// All calls reach the server before one is answered. Two rounds, because the client learns the server's protocol
/// in the first.
async fn all_are_under_way_at_once(protocol: Protocol) {
    let mut gated = Gated::start(protocol).await;
    let client = gated.client(gated.ca_file()).unwrap();
    let (spec, messages) = (spec(false), [Message::user("yes?")]);
    for round in 1..=2 {
        gated.open.send_replace(false);
        let mut calls: FuturesUnordered<_> = (0..CALLS).map(|_| ask(&client, &spec, &messages)).collect();
        let all_there = tokio::time::timeout(patient().first_token, async {
            tokio::select! {
                there = gated.arrived.wait_for(|count| *count == round * CALLS) => drop(there.unwrap()),
                answered = calls.next() => panic!("a call ended before all had arrived: {answered:?}"),
            }
        });
        assert!(all_there.await.is_ok(), "{protocol:?}, round {round}: {} arrived", *gated.arrived.borrow());
        gated.open.send_replace(true);
        while let Some((reply, _)) = calls.next().await {
            assert_eq!(reply.unwrap().message.text(), "yes");
        }
    }
}

#[tokio::test]
async fn http2_calls_exceed_one_connections_streams() {
    all_are_under_way_at_once(Protocol::Http2).await;
}

#[tokio::test]
async fn http2_burst_opens_one_connection_per_hundred_calls() {
    let gated = Gated::start(Protocol::Http2).await;
    let client = gated.client(gated.ca_file()).unwrap();
    let (spec, messages) = (spec(false), [Message::user("yes?")]);
    gated.open.send_replace(true);
    ask(&client, &spec, &messages).await.0.unwrap();
    let before = gated.server.connections();
    assert_eq!(before, 1);
    let mut calls: FuturesUnordered<_> = (0..CALLS).map(|_| ask(&client, &spec, &messages)).collect();
    while let Some((reply, _)) = calls.next().await {
        reply.unwrap();
    }
    assert!(gated.server.connections() - before <= CALLS.div_ceil(100), "{} opened", gated.server.connections());
}

#[tokio::test]
async fn switch_from_http2_to_http1_fails_one_call() {
    let (before, after) = (Gated::start(Protocol::Http2).await, Gated::start(Protocol::Https1).await);
    before.open.send_replace(true);
    after.open.send_replace(true);
    let both = [&before, &after].map(|gated| gated.server.certificate().unwrap()).concat();
    let proxy = FaultProxy::before(&before.server.url()).await.unwrap();
    let client = trusting(proxy.url_through(&before.server.url()).unwrap(), Some(before.file(&both))).unwrap();
    let (spec, messages) = (spec(false), [Message::user("yes?")]);
    for _ in 0..2 {
        ask(&client, &spec, &messages).await.0.unwrap();
    }
    let moved = after.server.url().parse::<reqwest::Url>().unwrap().socket_addrs(|| None).unwrap()[0];
    proxy.set_upstream(moved);
    proxy.drop_connections().await;
    let error = ask(&client, &spec, &messages).await.0.unwrap_err();
    assert!(matches!(error, ModelError::Unreachable { .. }), "{error:?}");
    for _ in 0..2 {
        ask(&client, &spec, &messages).await.0.unwrap();
    }
    assert_eq!((*before.arrived.borrow(), *after.arrived.borrow()), (2, 2));
}

#[tokio::test]
async fn http1_opens_one_connection_per_concurrent_call() {
    all_are_under_way_at_once(Protocol::Http1).await;
    all_are_under_way_at_once(Protocol::Https1).await;
}

#[tokio::test]
async fn untrusted_certificate_is_refused_before_any_request() {
    let gated = Gated::start(Protocol::Http2).await;
    let other = Gated::start(Protocol::Http2).await;
    for ca_file in [None, other.ca_file()] {
        let client = gated.client(ca_file).unwrap();
        let error = ask(&client, &spec(false), &[Message::user("yes?")]).await.0.unwrap_err();
        assert!(matches!(error, ModelError::Unreachable { .. }), "{error:?}");
    }
    assert_eq!(*gated.arrived.borrow(), 0);
}

#[tokio::test]
async fn invalid_certificate_file_is_refused_at_start() {
    let gated = Gated::start(Protocol::Http2).await;
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    for text in [None, Some("no certificate"), Some(broken)] {
        let path = text.map_or(gated.dir.path().join("missing.pem"), |text| gated.file(text));
        let ModelsError::Provider { name, source } = gated.client(Some(path.clone())).map(drop).unwrap_err() else {
            panic!("another error than the provider's")
        };
        assert_eq!(
            (name.as_str(), source.to_string()),
            ("p", format!("{path:?} cannot be read as certificates in PEM"))
        );
    }
}
