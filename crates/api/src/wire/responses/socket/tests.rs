//! Limits of a socket's connection, with time that does not pass by itself.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use longhaul_config::FilesConfig;
use longhaul_domain::TenantId;
use longhaul_files::memory::FileMemory;
use tokio::{
    io::{AsyncWriteExt, DuplexStream, copy, duplex, sink, split},
    time::{Instant, sleep, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};
use uuid::Uuid;

use super::connection::{Connection, Heard};

type Client = WebSocketStream<DuplexStream>;

const TENANT: TenantId = TenantId(Uuid::nil());
const FILE: usize = FilesConfig::FILE_BYTES;

fn memory() -> FileMemory {
    FileMemory::new(2 * FILE as u64)
}

async fn pair(memory: &FileMemory) -> (Connection<DuplexStream>, Client) {
    let (server, client) = duplex(64 * 1_024);
    let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    (Connection::open(server, memory.clone(), TENANT).await, client)
}

/// Texts and the close frame that a client gets.
async fn rest(mut client: Client) -> (Vec<String>, Option<CloseFrame>) {
    let (mut texts, mut closed) = (Vec::new(), None);
    while let Some(Ok(message)) = client.next().await {
        match message {
            Message::Text(text) => texts.push(text.to_string()),
            Message::Close(frame) => closed = frame,
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
    (texts, closed)
}

/// Closes a socket that is over. Returns what its client got.
async fn ended(mut connection: Connection<DuplexStream>, client: Client) -> (String, CloseCode) {
    let server = async {
        loop {
            if let Heard::Over(closing) = connection.next().await {
                return connection.close(closing).await;
            }
        }
    };
    let ((), (texts, closed)) = tokio::join!(server, rest(client));
    (texts.concat(), closed.expect("a reason").code)
}

#[tokio::test(start_paused = true)]
async fn silent_client_is_closed_and_pings_keep_it() {
    let (mut connection, mut client) = pair(&memory()).await;
    let began = Instant::now();
    let server = tokio::spawn(async move { connection.next().await });
    for _ in 0..10 {
        sleep(Duration::from_secs(100)).await;
        client.send(Message::Ping(Vec::new().into())).await.unwrap();
    }
    assert!(!server.is_finished(), "after {:?}", began.elapsed());
    let heard = server.await.unwrap();
    assert!(matches!(heard, Heard::Over(_)), "{heard:?}");
    assert!((1_110..1_130).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn socket_ends_after_an_hour() {
    let (connection, client) = pair(&memory()).await;
    let began = Instant::now();
    // The client answers pings and says nothing.
    let (told, code) = ended(connection, client).await;
    assert!(told.contains("websocket_connection_limit_reached"), "{told}");
    assert_eq!((code, began.elapsed().as_secs()), (CloseCode::Normal, 3_600));
}

#[tokio::test(start_paused = true)]
async fn large_message_holds_memory_until_it_is_read() {
    let memory = memory();
    let free = memory.free();
    let (mut connection, mut client) = pair(&memory).await;
    let sending = tokio::spawn(async move {
        client.send(Message::text("x".repeat(FILE))).await.unwrap();
        client.send(Message::text("small")).await.unwrap();
        client
    });
    let heard = connection.next().await;
    let Heard::Text(text) = heard else { panic!("{heard:?}") };
    assert_eq!(text.as_bytes().len(), FILE);
    assert_eq!(free - memory.free(), FILE as u64);
    drop(text);
    assert_eq!(memory.free(), free);
    let heard = connection.next().await;
    assert!(matches!(&heard, Heard::Text(text) if text.as_bytes() == b"small"), "{heard:?}");
    assert_eq!(memory.free(), free);
    drop(sending.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn oversized_message_ends_the_socket_unread() {
    let memory = memory();
    let free = memory.free();
    let (connection, mut client) = pair(&memory).await;
    // The head of a masked text frame alone.
    let mut head = vec![0x81, 0xff];
    head.extend((FILE as u64 + 1).to_be_bytes());
    head.extend([0; 4]);
    client.get_mut().write_all(&head).await.unwrap();
    let (told, code) = ended(connection, client).await;
    assert!(told.contains("\"status\":413"), "{told}");
    assert_eq!((code, memory.free()), (CloseCode::Size, free));
}

/// A part of a message with `bytes` bytes, without its end.
fn part(is_first: bool, bytes: u16) -> Vec<u8> {
    let mut frame = vec![u8::from(is_first), 0xfe];
    frame.extend(bytes.to_be_bytes());
    frame.extend([0; 4]);
    frame.resize(frame.len() + usize::from(bytes), b'x');
    frame
}

const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];

/// Sends parts of a message with a ping after each, until the server hangs up. Returns the bytes that it took.
async fn send_parts(client: DuplexStream, bytes: u16, pause: Duration) -> usize {
    let (mut from, mut to) = split(client);
    let reading = tokio::spawn(async move { copy(&mut from, &mut sink()).await });
    let (mut sent, mut is_first) = (0, true);
    loop {
        let mut frames = part(is_first, bytes);
        frames.extend(PING);
        if to.write_all(&frames).await.is_err() {
            break;
        }
        (sent, is_first) = (sent + frames.len(), false);
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
    let _ = reading.await.unwrap();
    sent
}

#[tokio::test(start_paused = true)]
async fn message_that_does_not_end_gives_its_memory_back() {
    let memory = memory();
    let free = memory.free();
    let (mut connection, client) = pair(&memory).await;
    let began = Instant::now();
    let sending = tokio::spawn(send_parts(client.into_inner(), 10 * 1_024, Duration::from_secs(1)));
    assert!(timeout(Duration::from_secs(60), connection.next()).await.is_err());
    assert!(memory.free() < free, "a ping within a message ends its count");
    let heard = connection.next().await;
    assert!(matches!(heard, Heard::Over(_)), "{heard:?}");
    assert!((120..130).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    drop(connection);
    assert_eq!(memory.free(), free);
    sending.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn small_parts_of_a_message_are_bounded() {
    let (mut connection, client) = pair(&memory()).await;
    let sending = tokio::spawn(send_parts(client.into_inner(), 64, Duration::ZERO));
    let heard = connection.next().await;
    assert!(matches!(heard, Heard::Over(_)), "{heard:?}");
    drop(connection);
    assert!(sending.await.unwrap() < 2 * FILE);
}

#[tokio::test(start_paused = true)]
async fn binary_message_is_refused_and_forgotten() {
    let memory = memory();
    let free = memory.free();
    let (mut connection, mut client) = pair(&memory).await;
    let sending = tokio::spawn(async move {
        client.send(Message::Binary(vec![0; FILE / 2].into())).await.unwrap();
        client.send(Message::text("{}")).await.unwrap();
        client
    });
    let heard = connection.next().await;
    assert!(matches!(heard, Heard::Odd(_)), "{heard:?}");
    assert_eq!(memory.free(), free);
    assert!(matches!(connection.next().await, Heard::Text(_)));
    drop(sending.await.unwrap());
}
