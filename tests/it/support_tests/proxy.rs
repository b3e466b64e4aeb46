//! Every fault of the proxy, as a client sees it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longhaul_testkit::proxy::FaultProxy;
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::db::TestDb;
use crate::support::wait::{SOON, within};

/// Long enough for any byte that can pass to pass on loopback.
const QUIET: Duration = Duration::from_millis(150);

/// Answers each chunk with its name and the chunk.
struct Echo {
    address: SocketAddr,
    _server: JoinSet<()>,
}

impl Echo {
    async fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    let mut chunk = [0; 1024];
                    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
                        let answer = [name.as_bytes(), &chunk[..read]].concat();
                        if stream.write_all(&answer).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, _server: server }
    }
}

async fn dial(proxy: &FaultProxy) -> TcpStream {
    let authority = proxy.url_through("redis://elsewhere:1/").unwrap().replace("redis://", "");
    TcpStream::connect(authority.trim_end_matches('/')).await.unwrap()
}

async fn ask(stream: &mut TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    answer(stream).await
}

/// The next chunk; empty if the connection has ended.
async fn answer(stream: &mut TcpStream) -> String {
    let mut chunk = [0; 1024];
    let read = within("an answer", SOON, stream.read(&mut chunk)).await.unwrap_or(0);
    String::from_utf8_lossy(&chunk[..read]).into_owned()
}

#[tokio::test]
async fn cut_ends_connections_and_refuses_new_ones() {
    let echo = Echo::start("a:").await;
    let proxy = FaultProxy::to(echo.address).await.unwrap();
    let mut stream = dial(&proxy).await;
    assert_eq!(ask(&mut stream, "one").await, "a:one");
    proxy.cut().await;
    assert_eq!(answer(&mut stream).await, "");
    let authority = proxy.url_through("redis://elsewhere:1/").unwrap().replace("redis://", "");
    let refused = TcpStream::connect(authority.trim_end_matches('/')).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    proxy.pass().await.unwrap();
    assert_eq!(ask(&mut dial(&proxy).await, "two").await, "a:two");
}

#[tokio::test]
async fn dropped_connections_end_and_new_ones_are_taken() {
    let echo = Echo::start("a:").await;
    let proxy = FaultProxy::to(echo.address).await.unwrap();
    let mut stream = dial(&proxy).await;
    assert_eq!(ask(&mut stream, "one").await, "a:one");
    proxy.drop_connections().await;
    assert_eq!(answer(&mut stream).await, "");
    assert_eq!(ask(&mut dial(&proxy).await, "two").await, "a:two");
}

#[tokio::test]
async fn black_hole_holds_bytes_until_it_heals() {
    let echo = Echo::start("a:").await;
    let proxy = FaultProxy::to(echo.address).await.unwrap();
    let mut old = dial(&proxy).await;
    assert_eq!(ask(&mut old, "one").await, "a:one");
    proxy.black_hole();
    let mut new = dial(&proxy).await;
    old.write_all(b"two").await.unwrap();
    new.write_all(b"three").await.unwrap();
    assert!(tokio::time::timeout(QUIET, old.read_u8()).await.is_err());
    assert!(tokio::time::timeout(QUIET, new.read_u8()).await.is_err());
    proxy.pass().await.unwrap();
    assert_eq!(answer(&mut old).await, "a:two");
    assert_eq!(answer(&mut new).await, "a:three");
}

#[tokio::test]
async fn stranded_connections_stay_silent_and_new_ones_pass() {
    let echo = Echo::start("a:").await;
    let proxy = FaultProxy::to(echo.address).await.unwrap();
    let mut old = dial(&proxy).await;
    assert_eq!(ask(&mut old, "one").await, "a:one");
    proxy.strand_connections();
    drop(echo);
    old.write_all(b"two").await.unwrap();
    assert!(tokio::time::timeout(QUIET, old.read_u8()).await.is_err(), "neither an answer nor an end");
    let other = Echo::start("b:").await;
    proxy.set_upstream(other.address);
    assert_eq!(ask(&mut dial(&proxy).await, "three").await, "b:three");
}

#[tokio::test]
async fn delay_applies_in_both_directions() {
    let echo = Echo::start("a:").await;
    let proxy = FaultProxy::to(echo.address).await.unwrap();
    let mut stream = dial(&proxy).await;
    assert_eq!(ask(&mut stream, "one").await, "a:one");
    proxy.delay(Duration::from_millis(60));
    let asked = Instant::now();
    assert_eq!(ask(&mut stream, "two").await, "a:two");
    assert!(asked.elapsed() >= Duration::from_millis(120), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn new_upstream_serves_new_connections_only() {
    let (a, b) = (Echo::start("a:").await, Echo::start("b:").await);
    let proxy = FaultProxy::to(a.address).await.unwrap();
    let mut old = dial(&proxy).await;
    assert_eq!(ask(&mut old, "one").await, "a:one");
    proxy.set_upstream(b.address);
    assert_eq!(ask(&mut dial(&proxy).await, "two").await, "b:two");
    assert_eq!(ask(&mut old, "three").await, "a:three");
}

#[tokio::test]
async fn only_the_matching_reply_is_lost() {
    let echo = Echo::start("a:").await;
    let proxy = FaultProxy::to(echo.address).await.unwrap();
    let (mut stream, mut other) = (dial(&proxy).await, dial(&proxy).await);
    let planned = proxy.lose_reply("secret", "");
    assert_eq!(ask(&mut stream, "harmless").await, "a:harmless");
    assert_eq!(ask(&mut stream, "sec").await, "a:sec");
    assert_eq!(ask(&mut stream, "ret").await, "");
    planned.lost().await.unwrap();
    assert_eq!(ask(&mut other, "secret").await, "a:secret", "a plan applies once");
}

#[tokio::test]
async fn commit_with_lost_reply_is_committed() {
    let db = TestDb::create().await;
    sqlx::query("create table notes (text text)").execute(&db.pool).await.unwrap();
    let proxy = FaultProxy::before(&db.url).await.unwrap();
    let mut client = PgConnection::connect(&proxy.url_through(&db.url).unwrap()).await.unwrap();
    let mut transaction = client.begin().await.unwrap();
    sqlx::query("insert into notes values ('kept')").execute(&mut *transaction).await.unwrap();
    let planned = proxy.lose_reply("COMMIT", "COMMIT");
    assert!(transaction.commit().await.is_err());
    planned.lost().await.unwrap();
    let notes: Vec<String> = sqlx::query_scalar("select text from notes").fetch_all(&db.pool).await.unwrap();
    assert_eq!(notes, ["kept"]);
}

#[tokio::test]
async fn prepared_statement_with_lost_reply_is_committed() {
    let db = TestDb::create().await;
    sqlx::query("create table notes (text text)").execute(&db.pool).await.unwrap();
    let proxy = FaultProxy::before(&db.url).await.unwrap();
    let mut client = PgConnection::connect(&proxy.url_through(&db.url).unwrap()).await.unwrap();
    let planned = proxy.lose_reply("insert into notes", "INSERT 0 1");
    let sent = sqlx::query("insert into notes values ($1)").bind("kept").execute(&mut client).await;
    assert!(sent.is_err());
    planned.lost().await.unwrap();
    let notes: Vec<String> = sqlx::query_scalar("select text from notes").fetch_all(&db.pool).await.unwrap();
    assert_eq!(notes, ["kept"]);
}
