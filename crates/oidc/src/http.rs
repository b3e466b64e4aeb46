//! HTTP calls to the provider: bounded in number, time and size.

use std::{io, pin::Pin, time::Duration};

use longhaul_guards::http::{HttpOptions, client};
use openidconnect::{AsyncHttpClient, HttpRequest, HttpResponse};
use tokio::sync::Semaphore;

/// Limit of one call.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest answer: discovery documents, key sets and tokens are a few kilobytes.
const MAX_BYTES: usize = 1024 * 1024;
/// Calls at a time. A visitor needs no account to cause one.
const MAX_CALLS: usize = 16;

#[derive(Debug)]
pub(crate) struct Http {
    client: reqwest::Client,
    calls: Semaphore,
}

impl Http {
    /// # Errors
    /// The machine's TLS roots cannot be read.
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        Ok(Self { client: client(&HttpOptions::default())?, calls: Semaphore::new(MAX_CALLS) })
    }

    async fn send(&self, request: HttpRequest) -> io::Result<HttpResponse> {
        let request: reqwest::Request = request.try_into().map_err(without_url)?;
        let mut response = self.client.execute(request).await.map_err(without_url)?;
        let mut answer = HttpResponse::new(Vec::new());
        *answer.status_mut() = response.status();
        *answer.headers_mut() = response.headers().clone();
        while let Some(chunk) = response.chunk().await.map_err(without_url)? {
            if answer.body().len() + chunk.len() > MAX_BYTES {
                return Err(io::Error::other("the answer is too large"));
            }
            answer.body_mut().extend_from_slice(&chunk);
        }
        Ok(answer)
    }
}

impl<'c> AsyncHttpClient<'c> for Http {
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<HttpResponse>> + Send + 'c>>;

    /// Sends a request; redirects are not followed. Fails if there are too many calls, the provider does not answer in
    /// time, or its answer is too large.
    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(async move {
            let _permit = self.calls.try_acquire().map_err(|_| io::Error::other("too many sign-ins at a time"))?;
            tokio::time::timeout(PATIENCE, self.send(request))
                .await
                .map_err(|_| io::Error::other("no answer in time"))?
        })
    }
}

/// Codes and tokens may be in URLs, which must not reach a log.
fn without_url(error: reqwest::Error) -> io::Error {
    io::Error::other(error.without_url())
}
