//! The bytes that a client sends over a web socket: a message beyond a small size takes memory from the process's share
//! for files, as a body does, before it is read.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use longhaul_config::FilesConfig;
use longhaul_domain::TenantId;
use longhaul_fairness::Share;
use longhaul_files::memory::{FileMemory, SMALL_BYTES};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep, timeout},
};

use crate::routes::files::upload::{BODY_WAIT, MEMORY_STEP, MEMORY_WAIT};

/// Interval at which a message under way looks if its memory is asked back.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of a message on the wire: those of a body, and of the heads of its frames.
const MAX_READ: u64 = FilesConfig::FILE_BYTES as u64 + SMALL_BYTES;

/// Bytes of a control frame beside its payload: head and mask.
const CONTROL_HEAD: u64 = 6;

/// Memory that is waited for; `None` if there is none in time.
type Growing = Pin<Box<dyn Future<Output = Option<Share<TenantId>>> + Send>>;

/// A connection whose reads are counted, message by message.
pub(super) struct HeldReads<S> {
    stream: S,
    memory: FileMemory,
    tenant: TenantId,
    /// Bytes that were read of the message under way.
    read: u64,
    /// Bytes of it that may be read.
    covered: u64,
    held: Option<Share<TenantId>>,
    growing: Option<Growing>,
    /// Runs while memory is held.
    look: Option<Pin<Box<Sleep>>>,
    /// Time at which a message that holds memory must have arrived.
    ends: Instant,
}

impl<S> HeldReads<S> {
    pub(super) fn new(stream: S, memory: FileMemory, tenant: TenantId) -> Self {
        Self {
            stream,
            memory,
            tenant,
            read: 0,
            covered: SMALL_BYTES,
            held: None,
            growing: None,
            look: None,
            ends: Instant::now(),
        }
    }

    /// The memory of the message that has arrived. What is read from now on belongs to the next one.
    pub(super) fn end_message(&mut self) -> Option<Share<TenantId>> {
        (self.read, self.covered) = (0, SMALL_BYTES);
        (self.growing, self.look) = (None, None);
        // A complete message is answered.
        self.held.take().inspect(Share::set_busy)
    }

    /// Takes a control frame out of the count: it may arrive within a message, and holds no memory.
    pub(super) fn note_control(&mut self, payload: usize) {
        self.read = self.read.saturating_sub(payload as u64 + CONTROL_HEAD);
    }

    /// The connection without the count, for bytes that are dropped.
    pub(super) fn uncounted(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Waits until some byte may be read.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        loop {
            if let Some(growing) = &mut self.growing {
                let held = ready!(growing.as_mut().poll(cx));
                self.growing = None;
                let Some(held) = held else { return Poll::Ready(Err(io::ErrorKind::ResourceBusy.into())) };
                self.held = Some(held);
                self.covered = (self.covered + MEMORY_STEP).min(MAX_READ);
            }
            let room = self.covered.saturating_sub(self.read);
            if room > 0 {
                return Poll::Ready(Ok(room));
            }
            if self.covered >= MAX_READ {
                return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
            }
            self.grow();
        }
    }

    fn grow(&mut self) {
        let step = MEMORY_STEP.min(MAX_READ - self.covered);
        let mut held = self.held.take().unwrap_or_else(|| {
            self.ends = Instant::now() + BODY_WAIT;
            self.look = Some(Box::pin(sleep(LOOK_EVERY)));
            let held = self.memory.begin(self.tenant);
            held.set_idle();
            held
        });
        self.growing = Some(Box::pin(async move {
            let is_granted = timeout(MEMORY_WAIT, held.grow(step)).await.unwrap_or(false);
            is_granted.then_some(held)
        }));
    }

    /// # Errors
    /// The memory is asked back for a tenant that holds less, or the message takes too long.
    fn poll_look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while let Some(look) = &mut self.look {
            if self.held.as_ref().is_some_and(Share::is_asked_back) {
                return Err(io::ErrorKind::ResourceBusy.into());
            }
            if Instant::now() >= self.ends {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if look.as_mut().poll(cx).is_pending() {
                break;
            }
            *look = Box::pin(sleep(LOOK_EVERY));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeldReads<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.poll_look(cx)?;
        let room = usize::try_from(ready!(this.poll_room(cx))?).unwrap_or(usize::MAX);
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(room.min(buf.remaining())));
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
        let bytes = part.filled().len();
        buf.advance(bytes);
        this.read += bytes as u64;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeldReads<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
