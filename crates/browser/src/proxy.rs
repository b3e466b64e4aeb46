//! The proxy of one browser: SOCKS5 on loopback, for TCP only.
//!
//! Invariant: it connects to addresses that it has resolved and checked itself, for the page and for all that a page
//! loads. A DNS answer that changes between check and connection gains nothing, because the check is about the address
//! that is connected to.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use longhaul_domain::addresses::is_public;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, lookup_host},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;
use url::Host;

use crate::facts::Facts;

/// Connections of one browser at a time. Chromium opens at most 32 of its own to one proxy, and 255 `WebSockets`.
const MAX_CONNECTIONS: usize = 300;
/// Time to read a request, to resolve a name and to connect to one address.
const STEP: Duration = Duration::from_secs(10);
/// Names that one browser resolves at a time. A lookup holds a thread of the worker until the system gives up.
const MAX_LOOKUPS: usize = 4;
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 4;
const BLOCK: usize = 16 << 10;

const VERSION: u8 = 5;
const CONNECT: u8 = 1;
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const NOT_SUPPORTED: u8 = 7;

/// The bytes that the browsers of one attempt have sent and received.
#[derive(Debug)]
pub struct Transfer {
    used: AtomicU64,
    max: u64,
}

impl Transfer {
    #[must_use]
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Self { used: AtomicU64::new(0), max })
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.max
    }

    /// Text for the model once they are used up.
    pub(crate) fn message(&self) -> String {
        format!("the browser has transferred more than {} bytes, which is all that it may", self.max)
    }

    /// Counts `bytes` more. Returns false if they are too many.
    fn add(&self, bytes: usize) -> bool {
        self.used.fetch_add(bytes as u64, Ordering::Relaxed).saturating_add(bytes as u64) <= self.max
    }
}

/// Rules of one browser's connections.
#[derive(Debug)]
pub(crate) struct Reach {
    private_hosts: Arc<[String]>,
    transfer: Arc<Transfer>,
    facts: Arc<Facts>,
    lookups: Arc<Semaphore>,
}

/// A running proxy; dropped, it closes its connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(reach: Reach) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, Arc::new(reach))));
        Ok(Self { address, _serving: serving })
    }
}

async fn serve(listener: TcpListener, reach: Arc<Reach>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                match accepted {
                    Ok((browser, _)) => _ = connections.spawn(connect(browser, reach.clone())),
                    // Out of file descriptors, perhaps: the browser asks again.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection of the browser. An error closes it.
async fn connect(mut browser: TcpStream, reach: Arc<Reach>) {
    let Ok(Ok(Some((host, port)))) = timeout(STEP, request(&mut browser)).await else { return };
    let (reply, server) = match reach.open(&host, port).await {
        Ok(server) => (SUCCEEDED, Some(server)),
        Err(reply) => (reply, None),
    };
    if answer(&mut browser, reply).await.is_err() {
        return;
    }
    let Some(mut server) = server else { return };
    let (from_browser, to_browser) = browser.split();
    let (from_server, to_server) = server.split();
    let _ = tokio::try_join!(pump(from_browser, to_server, &reach), pump(from_server, to_browser, &reach));
}

/// Reads a request to connect. `None` if it asks for something else, which is answered.
async fn request(browser: &mut TcpStream) -> io::Result<Option<(Host, u16)>> {
    let [version, methods] = read(browser).await?;
    if version != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    browser.read_exact(&mut vec![0; methods.into()]).await?;
    // No authentication: the proxy gives nothing that another process of this machine does not have.
    browser.write_all(&[VERSION, 0]).await?;
    let [_, command, _, kind] = read(browser).await?;
    let host = match kind {
        1 => Host::Ipv4(Ipv4Addr::from(read::<4>(browser).await?)),
        4 => Host::Ipv6(Ipv6Addr::from(read::<16>(browser).await?)),
        3 => {
            let [length] = read(browser).await?;
            let mut name = vec![0; length.into()];
            browser.read_exact(&mut name).await?;
            let name = String::from_utf8(name).map_err(|_| io::ErrorKind::InvalidData)?;
            // Recognises every notation of an address, as the browser does.
            Host::parse(&name).map_err(|_| io::ErrorKind::InvalidData)?
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let port = u16::from_be_bytes(read(browser).await?);
    if command != CONNECT {
        answer(browser, NOT_SUPPORTED).await?;
        return Ok(None);
    }
    Ok(Some((host, port)))
}

async fn read<const N: usize>(from: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn answer(browser: &mut TcpStream, reply: u8) -> io::Result<()> {
    browser.write_all(&[VERSION, reply, 0, 1, 0, 0, 0, 0, 0, 0]).await
}

impl Reach {
    pub(crate) fn new(private_hosts: Arc<[String]>, transfer: Arc<Transfer>, facts: Arc<Facts>) -> Self {
        Self { private_hosts, transfer, facts, lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }

    /// Connects to a permitted address of the host. The error is a SOCKS reply.
    async fn open(&self, host: &Host, port: u16) -> Result<TcpStream, u8> {
        if self.transfer.is_used_up() {
            return Err(NOT_ALLOWED);
        }
        let found = match host {
            Host::Ipv4(address) => vec![SocketAddr::from((*address, port))],
            Host::Ipv6(address) => vec![SocketAddr::from((*address, port))],
            Host::Domain(name) => match timeout(STEP, self.lookup(name.clone(), port)).await {
                Ok(Some(found)) => found,
                Ok(None) | Err(_) => {
                    self.facts.note(&format!("the name `{name}` is not resolved"));
                    return Err(UNREACHABLE);
                }
            },
        };
        let permits = |address: IpAddr| is_public(address) || self.is_private_host(host, port);
        let permitted: Vec<_> = found.into_iter().filter(|address| permits(address.ip())).take(MAX_ADDRESSES).collect();
        if permitted.is_empty() {
            let refused = format!("`{host}` is not on the public internet, and pages may not be at private addresses");
            self.facts.note(&refused);
            return Err(NOT_ALLOWED);
        }
        for address in permitted {
            if let Ok(Ok(server)) = timeout(STEP, TcpStream::connect(address)).await {
                return Ok(server);
            }
        }
        self.facts.note(&format!("`{host}` cannot be connected to at port {port}"));
        Err(UNREACHABLE)
    }

    async fn lookup(&self, name: String, port: u16) -> Option<Vec<SocketAddr>> {
        let permit = self.lookups.clone().acquire_owned().await.ok()?;
        // A task of its own: after a timeout the lookup goes on and keeps its permit.
        let looking = tokio::spawn(async move {
            let found = lookup_host((name.as_str(), port)).await.ok().map(Iterator::collect);
            drop(permit);
            found
        });
        looking.await.ok().flatten()
    }

    fn is_private_host(&self, host: &Host, port: u16) -> bool {
        let (host, with_port) = (host.to_string(), format!("{host}:{port}"));
        self.private_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&host) || *allowed == with_port)
    }
}

/// Copies one direction of a connection and counts its bytes.
async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, reach: &Reach) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        let read = from.read(&mut block).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        if !reach.transfer.add(read) {
            reach.facts.end(&reach.transfer.message());
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        to.write_all(&block[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use longhaul_domain::TenantId;
    use longhaul_fairness::FairShare;
    use uuid::Uuid;

    use super::*;

    fn reach(private_hosts: &[&str], max: u64) -> (Reach, io::PipeReader) {
        let (reader, life) = io::pipe().unwrap();
        let private_hosts = private_hosts.iter().map(|host| (*host).to_owned()).collect();
        let place = FairShare::new(1).try_take(TenantId(Uuid::nil()), 1).unwrap();
        (Reach::new(private_hosts, Transfer::new(max), Facts::new(life, &Arc::new(place))), reader)
    }

    async fn ask(proxy: &Proxy, kind: u8, host: &[u8], port: u16) -> (u8, TcpStream) {
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        client.write_all(&[5, 1, 0]).await.unwrap();
        assert_eq!(read(&mut client).await.unwrap(), [5, 0]);
        client.write_all(&[&[5, 1, 0, kind], host, &port.to_be_bytes()].concat()).await.unwrap();
        let reply: [u8; 10] = read(&mut client).await.unwrap();
        (reply[1], client)
    }

    fn name(name: &str) -> Vec<u8> {
        [&[u8::try_from(name.len()).unwrap()], name.as_bytes()].concat()
    }

    #[tokio::test]
    async fn private_address_is_refused_in_every_notation() {
        let (reach, _life) = reach(&["127.0.0.1:1"], 1 << 20);
        let proxy = Proxy::start(reach).await.unwrap();
        for host in ["localhost", "127.1", "0x7f000001", "2130706433", "10.0.0.1", "169.254.169.254", "0"] {
            assert_eq!(ask(&proxy, 3, &name(host), 80).await.0, NOT_ALLOWED, "{host}");
        }
        assert_eq!(ask(&proxy, 1, &[192, 168, 0, 1], 80).await.0, NOT_ALLOWED);
        let mapped = "::ffff:127.0.0.1".parse::<Ipv6Addr>().unwrap().octets();
        assert_eq!(ask(&proxy, 4, &mapped, 80).await.0, NOT_ALLOWED);
        // Its own port, too.
        assert_eq!(ask(&proxy, 1, &[127, 0, 0, 1], proxy.address.port()).await.0, NOT_ALLOWED);
    }

    #[tokio::test]
    async fn bytes_beyond_the_limit_end_the_browser() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let (reach, life) = reach(&[&format!("127.0.0.1:{port}")], 1_000);
        let facts = reach.facts.clone();
        let proxy = Proxy::start(reach).await.unwrap();
        let (reply, mut client) = ask(&proxy, 1, &[127, 0, 0, 1], port).await;
        assert_eq!(reply, SUCCEEDED);
        let (mut served, _) = server.accept().await.unwrap();
        served.write_all(&[7; 1_000]).await.unwrap();
        client.read_exact(&mut [0; 1_000]).await.unwrap();
        served.write_all(&[7]).await.unwrap();
        assert_eq!(client.read(&mut [0; 10]).await.unwrap_or(0), 0);
        assert!(facts.gone().unwrap().contains("1000 bytes"));
        // The guard sees the end of its pipe.
        assert_eq!(io::Read::read(&mut &life, &mut [0]).unwrap(), 0);
        assert_eq!(ask(&proxy, 1, &[127, 0, 0, 1], port).await.0, NOT_ALLOWED);
    }
}
