//! The HTTP server: three routes.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::ExposeSecret;
use serde_json::json;
use subtle::ConstantTimeEq;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    options::Options,
    service::{Refused, Sandbox},
    wire, workspace,
};

/// Maximum time to receive a request body. A slow caller delays no other request.
const TO_SEND: Duration = Duration::from_secs(10);
/// Allowance beyond the time a request may wait and run: to start, to kill, to clean up.
const AROUND: Duration = Duration::from_secs(45);
/// `Retry-After` of a busy sandbox, in seconds: runs are short.
const AGAIN: &str = "1";
/// Names the tenant whose share a request takes; callers without it have one share together.
const TENANT: &str = "longhaul-tenant";
/// Maximum length of that name, in bytes.
const TENANT_BYTES: usize = 128;

type Answer = Response<Full<Bytes>>;

/// Limits on connections. Callers without a token may connect too, so no connection may keep its slot for ever.
#[derive(Debug, Clone, Copy)]
struct Door {
    /// Maximum number of open connections; further ones wait to be accepted.
    places: usize,
    /// Maximum time until the first request arrives.
    first: Duration,
    /// Maximum time for the head of a further request, including the idle time before it: longer than clients keep
    /// an unused connection.
    idle: Duration,
    /// Age at which a connection is closed after its current answer, or at once when no request is open.
    age: Duration,
    /// Maximum time for that closing: the longest request. A caller that has not read its answer by then loses it.
    rest: Duration,
}

impl Door {
    fn of(options: &Options) -> Self {
        Self {
            places: 1_024,
            first: Duration::from_secs(15),
            idle: Duration::from_secs(120),
            age: Duration::from_secs(60),
            rest: TO_SEND
                + options.queue_wait.max(workspace::QUEUE)
                + options.timeout_max
                + AROUND
                + 2 * workspace::TRANSFER,
        }
    }
}

/// Serves until `shutdown`, then lets open requests finish within the shutdown time.
///
/// # Errors
/// A connection slot cannot be acquired.
pub async fn serve(sandbox: Sandbox, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
    let door = Door::of(&sandbox.options);
    open(door, sandbox, listener, shutdown).await
}

async fn open(door: Door, sandbox: Sandbox, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
    let sandbox = Arc::new(sandbox);
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(door.places));
    let abandon = CancellationToken::new();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&room).acquire_owned() => place.map_err(io::Error::other)?,
            () = shutdown.cancelled() => break,
        };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Most likely out of file descriptors; other connections close meanwhile.
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = shutdown.cancelled() => break,
        };
        let _ = stream.set_nodelay(true);
        let (sandbox, shutdown, abandon) = (Arc::clone(&sandbox), shutdown.clone(), abandon.clone());
        connections.spawn(async move {
            tokio::select! {
                () = attend(door, sandbox, stream, shutdown) => {}
                () = abandon.cancelled() => {}
            }
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    if timeout(sandbox.options.shutdown, connections.wait()).await.is_err() {
        tracing::warn!("requests that were still open are ended");
        abandon.cancel();
        connections.wait().await;
    }
    sandbox.idle().await;
    Ok(())
}

/// Serves one connection until it ends or reaches a limit.
async fn attend(door: Door, sandbox: Arc<Sandbox>, stream: TcpStream, shutdown: CancellationToken) {
    let asked = CancellationToken::new();
    let first = asked.clone();
    let service = service_fn(move |request| {
        first.cancel();
        answer(Arc::clone(&sandbox), request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(door.idle)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let grows_old = async {
        match timeout(door.first, asked.cancelled()).await {
            Ok(()) => sleep(door.age).await,
            Err(_) => tracing::debug!("a connection on which nothing was asked is closed"),
        }
    };
    // A connection error is the caller's concern and is not reported.
    tokio::select! {
        _ = served.as_mut() => return,
        () = grows_old => {}
        () = shutdown.cancelled() => {}
    }
    served.as_mut().graceful_shutdown();
    if timeout(door.rest, served).await.is_err() {
        tracing::debug!("a connection whose answers nobody reads is closed");
    }
}

async fn answer(sandbox: Arc<Sandbox>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let method = request.method().clone();
    Ok(match (request.uri().path(), &method) {
        ("/health", &Method::GET | &Method::HEAD) => health(&sandbox),
        ("/health", _) => not_allowed("GET, HEAD"),
        ("/v1/execute", &Method::POST) => execute(&sandbox, request).await,
        ("/v1/execute", _) => not_allowed("POST"),
        ("/v1/workspace", &Method::POST) => run_workspace(&sandbox, request).await,
        ("/v1/workspace", _) => not_allowed("POST"),
        _ => refuse(StatusCode::NOT_FOUND, "not_found", "there is nothing here"),
    })
}

fn health(sandbox: &Sandbox) -> Answer {
    let languages: Vec<_> = sandbox.options.languages.iter().map(|language| language.name()).collect();
    let body = json!({
        "status": "ok",
        "confinement": sandbox.confinement(),
        "languages": languages,
        "running": sandbox.running(),
        "capacity": sandbox.options.concurrency,
    });
    whole(StatusCode::OK, body.to_string())
}

fn unauthorized() -> Answer {
    refuse(StatusCode::UNAUTHORIZED, "unauthorized", "the sandbox's token is missing or wrong")
}

async fn body_of(request: Request<Incoming>, max: usize, time: Duration) -> Result<Bytes, Answer> {
    match timeout(time, Limited::new(request.into_body(), max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("a request may have {max} bytes");
            Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", &message))
        }
        Ok(Err(_)) => Err(refuse(StatusCode::BAD_REQUEST, "invalid_payload", "the body cannot be read")),
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "request_timeout", "the body took too long to arrive")),
    }
}

async fn run_workspace(sandbox: &Sandbox, request: Request<Incoming>) -> Answer {
    if !is_known(sandbox, &request) {
        return unauthorized();
    }
    // Before the body is read: the files of all requests that are held are those of the runs.
    let turn = match sandbox.turn(tenant_of(&request), workspace::QUEUE).await {
        Ok(turn) => turn,
        Err(refused) => return refused.answer(),
    };
    let body = match body_of(request, workspace::MAX_MESSAGE, workspace::TRANSFER).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let head = match workspace::parse(&body, &sandbox.options) {
        Ok(head) => head,
        Err(invalid) => return refuse(StatusCode::BAD_REQUEST, invalid.code, &invalid.message),
    };
    let ended = match sandbox.workspace(turn, &head, body.into()).await {
        Ok(ended) => ended,
        Err(error) => return internal(&error),
    };
    match workspace::answer(&head, ended, &sandbox.options) {
        Ok(answer) => {
            let mut answer = whole(StatusCode::OK, answer);
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            answer
        }
        Err(error) => internal(&error),
    }
}

async fn execute(sandbox: &Sandbox, request: Request<Incoming>) -> Answer {
    if !is_known(sandbox, &request) {
        return unauthorized();
    }
    let tenant = tenant_of(&request);
    let body = match body_of(request, sandbox.options.request_bytes, TO_SEND).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let request = match wire::Request::parse(&body, &sandbox.options) {
        Ok(request) => request,
        Err(invalid) => return refuse(StatusCode::BAD_REQUEST, invalid.code, &invalid.message),
    };
    drop(body);
    match sandbox.execute(tenant, request).await {
        Ok(outcome) => {
            let status = StatusCode::from_u16(outcome.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            match serde_json::to_vec(&outcome) {
                Ok(body) => whole(status, body),
                Err(error) => internal(&error),
            }
        }
        Err(refused) => refused.answer(),
    }
}

impl Refused {
    fn answer(&self) -> Answer {
        match self {
            Self::Busy => {
                let mut answer = refuse(StatusCode::SERVICE_UNAVAILABLE, "busy", &self.to_string());
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(AGAIN));
                answer
            }
            Self::Job(error) => internal(error),
        }
    }
}

/// Returns true if no token is set or the caller sends it as `Authorization: Bearer …` or `X-Service-Token`.
fn is_known(sandbox: &Sandbox, request: &Request<Incoming>) -> bool {
    let Some(token) = &sandbox.options.token else { return true };
    let headers = request.headers();
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let shown = bearer.or_else(|| headers.get("x-service-token").map(HeaderValue::as_bytes));
    shown.is_some_and(|shown| shown.ct_eq(token.expose_secret().as_bytes()).into())
}

fn tenant_of(request: &Request<Incoming>) -> String {
    let name = request.headers().get(TENANT).and_then(|value| value.to_str().ok());
    name.filter(|name| name.len() <= TENANT_BYTES).unwrap_or_default().to_owned()
}

fn internal(error: &(dyn std::error::Error + 'static)) -> Answer {
    tracing::error!(error, "a run failed");
    refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "the sandbox could not run the code")
}

fn not_allowed(allowed: &'static str) -> Answer {
    let mut answer = refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &format!("use {allowed}"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn refuse(status: StatusCode, code: &str, message: &str) -> Answer {
    whole(status, json!({"error": code, "message": message}).to_string())
}

fn whole(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpSocket,
        task::JoinHandle,
    };

    use super::*;
    use crate::{options::Choice, setup::Confinement};

    /// Time limit for expected events; no other wait is bounded by it.
    const PATIENCE: Duration = Duration::from_secs(60);
    const ASK: &[u8] = b"GET /health HTTP/1.1\r\nhost: sandbox\r\n\r\n";

    fn sandbox() -> Sandbox {
        let options = Options {
            program: PathBuf::new(),
            confinement: Choice::Auto,
            dangerously_run_unconfined: false,
            languages: Vec::new(),
            python: PathBuf::new(),
            bash: PathBuf::new(),
            bwrap: None,
            readable: Vec::new(),
            scratch: PathBuf::new(),
            token: None,
            first_user: 60_800,
            concurrency: 1,
            queue_max: 1,
            queue_wait: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            timeout_max: Duration::from_secs(1),
            memory_bytes: 1,
            processes_max: 1,
            open_files_max: 1,
            files_bytes: 1,
            files_max: 1,
            output_bytes: 1,
            result_bytes: 1,
            code_bytes: 1,
            request_bytes: 1,
            shutdown: Duration::from_secs(1),
        };
        Sandbox::new(options, Confinement::Nothing)
    }

    /// A server with two connection slots and the given limits.
    async fn two_places(
        first: Duration,
        age: Duration,
        rest: Duration,
    ) -> (std::net::SocketAddr, JoinHandle<io::Result<()>>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(4_096).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(16).unwrap();
        let address = listener.local_addr().unwrap();
        let door = Door { places: 2, first, idle: PATIENCE * 10, age, rest };
        (address, tokio::spawn(open(door, sandbox(), listener, CancellationToken::new())))
    }

    async fn connect(address: std::net::SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        // Small buffers, as at the server: a few unread answers fill them.
        socket.set_recv_buffer_size(4_096).unwrap();
        socket.connect(address).await.unwrap()
    }

    /// Sends a request and asserts that its answer begins with status 200.
    async fn assert_served(client: &mut TcpStream) {
        client.write_all(ASK).await.unwrap();
        let mut head = [0; 12];
        timeout(PATIENCE, client.read_exact(&mut head)).await.expect("it is served in time").unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
    }

    #[tokio::test]
    async fn unread_answers_do_not_block_other_callers() {
        let (address, server) = two_places(PATIENCE, Duration::from_millis(500), Duration::from_millis(500)).await;
        let silent = [connect(address).await, connect(address).await];
        let mut third = connect(address).await;
        let silent = silent.map(|mut client| {
            // Until the server closes: it takes no more requests once it cannot send answers.
            tokio::spawn(async move { while client.write_all(ASK).await.is_ok() {} })
        });
        assert_served(&mut third).await;
        silent.iter().for_each(JoinHandle::abort);
        server.abort();
    }

    #[tokio::test]
    async fn idle_connections_do_not_block_other_callers() {
        let (address, server) = two_places(Duration::from_millis(100), PATIENCE, PATIENCE).await;
        let _silent = [connect(address).await, connect(address).await];
        assert_served(&mut connect(address).await).await;
        server.abort();
    }

    #[tokio::test]
    async fn old_connection_closes_after_its_answer() {
        let (address, server) = two_places(PATIENCE, Duration::from_millis(100), PATIENCE).await;
        let mut client = connect(address).await;
        assert_served(&mut client).await;
        let mut left = Vec::new();
        timeout(PATIENCE, client.read_to_end(&mut left)).await.expect("it is closed").unwrap();
        server.abort();
    }
}
