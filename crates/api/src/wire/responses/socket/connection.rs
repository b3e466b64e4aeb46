//! A web socket whose client is bounded: in the size and the memory of its messages, in the time of its silence, and in
//! the life of the socket.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use longhaul_config::FilesConfig;
use longhaul_domain::TenantId;
use longhaul_fairness::Share;
use longhaul_files::memory::FileMemory;
use longhaul_wire::{Fault, FaultKind, responses::fault};
use tokio::{
    io::{AsyncRead, AsyncWrite, copy, sink},
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::held_reads::HeldReads;

/// Life of a socket, as of `OpenAI`'s.
const LIFE: Duration = Duration::from_hours(1);
/// Interval of pings, which clients answer by themselves.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Time without a frame after which the client counts as gone. Pings and their answers are frames.
const IDLE: Duration = Duration::from_secs(120);
/// Time for the last frames, and for the client to take them.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// Buffer of reads, in bytes; an idle socket holds one.
const READ_BUFFER: usize = 16 * 1024;

/// A web socket that a client opened.
pub(super) struct Connection<S> {
    socket: WebSocketStream<HeldReads<S>>,
    ends: Instant,
    /// Time of the last frame of the client.
    heard: Instant,
    next_ping: Instant,
    /// True once the client's frames cannot be told apart any more.
    is_broken: bool,
}

/// A message, with the memory that it takes.
#[derive(Debug)]
pub(super) struct Text {
    text: Utf8Bytes,
    _held: Option<Share<TenantId>>,
}

impl Text {
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// A message of a client, or the end of its socket.
#[derive(Debug)]
pub(super) enum Heard {
    Text(Text),
    /// A message that is refused; the socket goes on.
    Odd(Fault),
    Over(Closing),
}

/// The end of a socket.
#[derive(Debug)]
pub(super) struct Closing {
    /// Told before, in an error frame.
    fault: Option<Fault>,
    /// Absent if the client has closed the socket or is gone.
    frame: Option<CloseFrame>,
}

impl Closing {
    /// The client has closed the socket or is gone.
    fn gone() -> Self {
        Self { fault: None, frame: None }
    }

    /// An end without an error frame of its own.
    pub(super) fn because(code: CloseCode, reason: &'static str) -> Self {
        Self { fault: None, frame: Some(CloseFrame { code, reason: reason.into() }) }
    }

    /// An end that the client is told of in an error frame.
    pub(super) fn with(fault: Fault, code: CloseCode) -> Self {
        let reason = fault.code.clone().unwrap_or_default();
        Self { fault: Some(fault), frame: Some(CloseFrame { code, reason: reason.into() }) }
    }

    fn of(error: &Error) -> Self {
        let kind = if let Error::Io(error) = error { Some(error.kind()) } else { None };
        if matches!(error, Error::Capacity(_)) || kind == Some(std::io::ErrorKind::FileTooLarge) {
            return Self::with(too_large(), CloseCode::Size);
        }
        if kind == Some(std::io::ErrorKind::ResourceBusy) {
            let message = "this process has no memory for such a message now; connect and send it again";
            return Self::with(fault(FaultKind::Unavailable, message, "busy"), CloseCode::Again);
        }
        if kind == Some(std::io::ErrorKind::TimedOut) {
            return Self::because(CloseCode::Policy, "a message took too long");
        }
        if matches!(error, Error::Utf8(_)) {
            return Self::because(CloseCode::Invalid, "a message is not UTF-8");
        }
        if matches!(error, Error::Protocol(_)) {
            return Self::because(CloseCode::Protocol, "a frame breaks the protocol");
        }
        Self::gone()
    }
}

/// The end of a socket that the client must open anew. Also of one that keeps as much as it may.
pub(super) fn limit_reached(message: &str) -> Fault {
    fault(FaultKind::Invalid, message, "websocket_connection_limit_reached")
}

fn too_large() -> Fault {
    let message = format!("a message has at most {} bytes", FilesConfig::FILE_BYTES);
    fault(FaultKind::TooLarge, message, "payload_too_large")
}

pub(super) fn fault(kind: FaultKind, message: impl Into<String>, code: &str) -> Fault {
    Fault { kind, message: message.into(), param: None, code: Some(code.to_owned()) }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A socket over a connection that was switched. The memory of its messages counts for `tenant`.
    pub(super) async fn open(stream: S, memory: FileMemory, tenant: TenantId) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_message_size(Some(FilesConfig::FILE_BYTES))
            .max_frame_size(Some(FilesConfig::FILE_BYTES));
        let stream = HeldReads::new(stream, memory, tenant);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        let now = Instant::now();
        Self { socket, ends: now + LIFE, heard: now, next_ping: now + PING_EVERY, is_broken: false }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The client is gone, or reads too slowly.
    pub(super) async fn send(&mut self, text: String) -> Result<(), Closing> {
        self.socket.send(Message::text(text)).await.map_err(|_| Closing::gone())
    }

    /// Sends an error frame.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(super) async fn send_fault(&mut self, fault: &Fault) -> Result<(), Closing> {
        self.send(fault::frame(fault).to_string()).await
    }

    /// The next message, or the end of the socket. Loses nothing if it is dropped.
    pub(super) async fn next(&mut self) -> Heard {
        loop {
            let message = tokio::select! {
                message = self.socket.next() => message,
                () = sleep_until(self.ends) => {
                    let message = "a socket lives for 60 minutes; open another one";
                    return Heard::Over(Closing::with(limit_reached(message), CloseCode::Normal));
                }
                () = sleep_until(self.heard + IDLE) => {
                    return Heard::Over(Closing::because(CloseCode::Policy, "the client was silent for too long"));
                }
                () = sleep_until(self.next_ping) => {
                    self.next_ping = Instant::now() + PING_EVERY;
                    match self.socket.send(Message::Ping(Vec::new().into())).await {
                        Ok(()) => continue,
                        Err(_) => return Heard::Over(Closing::gone()),
                    }
                }
            };
            let message = match message {
                Some(Ok(message)) => message,
                Some(Err(error)) => {
                    self.is_broken = true;
                    return Heard::Over(Closing::of(&error));
                }
                None => return Heard::Over(Closing::gone()),
            };
            self.heard = Instant::now();
            match message {
                Message::Text(text) => {
                    return Heard::Text(Text { text, _held: self.socket.get_mut().end_message() });
                }
                Message::Binary(_) => {
                    drop(self.socket.get_mut().end_message());
                    let message = "messages are JSON in text frames";
                    return Heard::Odd(fault(FaultKind::Invalid, message, "invalid_json"));
                }
                Message::Ping(payload) => {
                    self.socket.get_mut().note_control(payload.len());
                    // Answers that the client does not take would pile up.
                    if self.socket.flush().await.is_err() {
                        return Heard::Over(Closing::gone());
                    }
                }
                Message::Pong(payload) => self.socket.get_mut().note_control(payload.len()),
                Message::Close(_) => return Heard::Over(Closing::gone()),
                // Only written, never read.
                Message::Frame(_) => {}
            }
        }
    }

    /// Tells the client of the end, as far as it listens.
    pub(super) async fn close(mut self, closing: Closing) {
        let Closing { fault, frame } = closing;
        let telling = async {
            if let Some(fault) = fault {
                let _ = self.send_fault(&fault).await;
            }
            if let Some(frame) = frame {
                let _ = self.socket.close(Some(frame)).await;
            }
            // Until the client has closed too: bytes that are not read would reset the connection, and the client
            // would not read the reason.
            if self.is_broken {
                let _ = copy(self.socket.get_mut().uncounted(), &mut sink()).await;
            }
            while let Some(Ok(_)) = self.socket.next().await {}
        };
        let _ = timeout(CLOSE_WAIT, telling).await;
    }
}
