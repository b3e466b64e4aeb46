//! The hello of a TLS client, which lists the versions of HTTP that it offers.

use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
};

/// A server that reads one client's hello and hangs up.
pub(crate) struct Hello {
    pub(crate) url: String,
    listener: TcpListener,
}

impl Hello {
    pub(crate) async fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/", listener.local_addr().unwrap());
        Self { url, listener }
    }

    /// Returns true if the client offers HTTP/2 in the list of protocols of its hello.
    pub(crate) async fn offers_http2(self) -> bool {
        let (mut client, _) = self.listener.accept().await.unwrap();
        let hello = record(&mut client).await;
        let has = |protocol: &[u8]| hello.windows(protocol.len()).any(|part| part == protocol);
        // The whole list with its lengths, so that random bytes cannot match.
        has(b"\x00\x10\x00\x0e\x00\x0c\x02h2\x08http/1.1")
    }
}

/// Reads the first record, which is the whole hello.
async fn record(client: &mut TcpStream) -> Vec<u8> {
    let mut header = [0; 5];
    client.read_exact(&mut header).await.unwrap();
    assert_eq!(header[0], 22, "a handshake");
    let mut body = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
    client.read_exact(&mut body).await.unwrap();
    body
}
