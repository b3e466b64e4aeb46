//! Framing between service and warden: a length of 4 bytes (big-endian), then the body. Closing either end ends the
//! run.

use std::io::{self, Read, Write};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Maximum length of a frame; larger than any configurable request or result, and than any workspace.
const MAX: u32 = 320 << 20;

pub(crate) fn write(to: &mut impl Write, body: &[u8]) -> io::Result<()> {
    to.write_all(&length(body)?.to_be_bytes())?;
    to.write_all(body)?;
    to.flush()
}

pub(crate) fn read(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut body = vec![0; checked(u32::from_be_bytes(length))?];
    from.read_exact(&mut body)?;
    Ok(body)
}

pub(crate) async fn send(to: &mut (impl AsyncWrite + Unpin), body: &[u8]) -> io::Result<()> {
    to.write_all(&length(body)?.to_be_bytes()).await?;
    to.write_all(body).await
}

/// Returns the body of the frame at the beginning of a message, if it is whole.
pub(crate) fn first(message: &[u8]) -> Option<&[u8]> {
    let (length, rest) = message.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// Not cancel-safe: bytes already read are lost.
pub(crate) async fn receive(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    let mut body = vec![0; checked(length)?];
    from.read_exact(&mut body).await?;
    Ok(body)
}

fn length(body: &[u8]) -> io::Result<u32> {
    u32::try_from(body.len()).ok().filter(|length| *length <= MAX).ok_or_else(too_long)
}

fn checked(length: u32) -> io::Result<usize> {
    if length > MAX {
        return Err(too_long());
    }
    usize::try_from(length).map_err(io::Error::other)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a frame is longer than any may be")
}
