//! The bytes of a connection, whose client must read its responses at a least rate: a slower one would hold the memory
//! of what it does not read.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Least rate of a client that has something to read, in bytes per second.
const LEAST_RATE: usize = 16 * 1024;

/// A connection that fails when its client takes fewer than [`LEAST_RATE`] bytes per second for `window`, while more
/// wait for it. It holds `K` for as long as it lives, also in the hands of a web socket.
#[derive(Debug)]
pub(crate) struct PacedWrites<S, K = ()> {
    stream: S,
    _kept: K,
    window: Duration,
    /// Runs while bytes wait for the client.
    running: Option<Pin<Box<Sleep>>>,
    /// Bytes that were taken since the window began.
    taken: usize,
}

impl<S, K> PacedWrites<S, K> {
    pub(crate) fn new(stream: S, window: Duration, kept: K) -> Self {
        Self { stream, _kept: kept, window, running: None, taken: 0 }
    }

    /// Ends the window if nothing waits for the client, or if it took enough.
    fn restart(&mut self) {
        self.running = None;
        self.taken = 0;
    }

    fn written(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = result {
            self.taken += bytes;
            if self.taken >= LEAST_RATE * usize::try_from(self.window.as_secs().max(1)).unwrap_or(usize::MAX) {
                self.restart();
            }
        }
        if result.is_ready() {
            return result;
        }
        let window = self.window;
        let running = self.running.get_or_insert_with(|| Box::pin(sleep(window)));
        ready!(running.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly")))
    }
}

impl<S: AsyncRead + Unpin, K: Unpin> AsyncRead for PacedWrites<S, K> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, K: Unpin> AsyncWrite for PacedWrites<S, K> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Everything was written.
        self.restart();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::Instant,
    };

    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);
    const ROOM: usize = 64 * 1024;
    const BYTES: usize = 4 * 1024 * 1024;

    /// Bytes that a client which reads `portion` each second gets of a response.
    async fn read(portion: usize) -> usize {
        let (server, mut client) = duplex(ROOM);
        let writing = tokio::spawn(async move {
            let mut server = PacedWrites::new(server, WINDOW, ());
            server.write_all(&vec![b'x'; BYTES]).await?;
            server.flush().await
        });
        let (mut buffer, mut got) = (vec![0; portion], 0);
        while !writing.is_finished() {
            sleep(Duration::from_secs(1)).await;
            got += client.read(&mut buffer).await.unwrap();
        }
        let mut rest = Vec::new();
        got += client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(writing.await.unwrap().is_ok(), got == BYTES);
        got
    }

    #[tokio::test(start_paused = true)]
    async fn client_below_the_least_rate_is_cut_off() {
        assert_eq!(read(LEAST_RATE + 1_024).await, BYTES);
        let started = Instant::now();
        assert!(read(LEAST_RATE - 4_096).await < BYTES);
        assert!(started.elapsed() < 2 * WINDOW, "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_stream_is_not_a_slow_client() {
        let (server, mut client) = duplex(4);
        let mut server = PacedWrites::new(server, WINDOW, ());
        let mut event = [0; 8];
        for _ in 0..3 {
            let (wrote, _) = tokio::join!(
                async {
                    server.write_all(b"an event").await?;
                    server.flush().await
                },
                client.read_exact(&mut event)
            );
            wrote.unwrap();
            sleep(10 * WINDOW).await;
        }
    }
}
