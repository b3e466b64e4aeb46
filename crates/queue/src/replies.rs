//! The text so far of replies under way, for chats that reconnect (docs/design/sessions.md).
//!
//! One key names the turn that an execution writes, another holds that turn's text. Losing them is harmless: the
//! recorded turn has the whole text.

use longhaul_domain::ExecutionId;
use redis::{Pipeline, RedisResult, aio::MultiplexedConnection};

use super::{keys::Keys, messages::TextDelta};

/// Most bytes of a reply that are kept. A longer reply keeps its begin.
const MAX_BYTES: usize = 256 * 1024;
/// Time after its last piece for which a reply is kept, in seconds.
const TTL_SECONDS: u64 = 900;

/// A change of the kept reply of an execution.
#[derive(Debug)]
pub(super) enum ReplyNote {
    Text(TextDelta),
    /// The turn is asked, perhaps again: text before this is void.
    Void(ExecutionId),
}

impl ReplyNote {
    /// Adds the commands of this note, whose answers are ignored.
    pub(super) fn keep(&self, keys: &Keys, pipeline: &mut Pipeline) {
        match self {
            Self::Void(execution) => pipeline.cmd("DEL").arg(keys.reply(*execution)).ignore(),
            Self::Text(TextDelta { execution, turn, offset: 0, text }) => {
                let (turn_key, text_key) = (keys.reply(*execution), keys.reply_text(*execution, *turn));
                pipeline.cmd("SET").arg(turn_key).arg(turn).arg("EX").arg(TTL_SECONDS).ignore();
                pipeline.cmd("SET").arg(text_key).arg(text).arg("EX").arg(TTL_SECONDS).ignore()
            }
            Self::Text(TextDelta { execution, turn, offset, text }) if offset + text.len() <= MAX_BYTES => {
                let key = keys.reply_text(*execution, *turn);
                pipeline.cmd("SETRANGE").arg(&key).arg(offset).arg(text).ignore();
                pipeline.cmd("EXPIRE").arg(&key).arg(TTL_SECONDS).ignore();
                pipeline.cmd("EXPIRE").arg(keys.reply(*execution)).arg(TTL_SECONDS).ignore()
            }
            Self::Text(_) => pipeline,
        };
    }
}

/// Keys of all that may be kept of an execution whose last recorded turn is `turns`: also a turn that was under way.
pub(super) fn keys_of(keys: &Keys, execution: ExecutionId, turns: u32) -> impl Iterator<Item = String> {
    let texts = (0..=turns.saturating_add(1)).map(move |turn| keys.reply_text(execution, turn));
    std::iter::once(keys.reply(execution)).chain(texts)
}

/// Text kept of the turn under way, at offset 0.
pub(super) async fn text_so_far(
    keys: &Keys,
    execution: ExecutionId,
    connection: &mut MultiplexedConnection,
) -> RedisResult<Option<TextDelta>> {
    let turn: Option<u32> = redis::cmd("GET").arg(keys.reply(execution)).query_async(connection).await?;
    let Some(turn) = turn else { return Ok(None) };
    let text: Option<Vec<u8>> = redis::cmd("GET").arg(keys.reply_text(execution, turn)).query_async(connection).await?;
    Ok(text.and_then(whole).map(|text| TextDelta { execution, turn, offset: 0, text }))
}

/// The text, unless a piece of it was lost: Redis fills the gap with zeros.
fn whole(text: Vec<u8>) -> Option<String> {
    String::from_utf8(text).ok().filter(|text| !text.contains('\0'))
}
