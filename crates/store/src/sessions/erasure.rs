//! Erasure of the copies that a session's transcript has of an execution's texts (docs/design/files.md).
//!
//! A tombstone takes the place of each message, so that the numbers of the others, and the positions that recorded
//! compressions name, stay. A summary that stands for an erased message is erased with it.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_domain::{SessionId, TenantId, message::Message};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Store, StoreError, history::body};

/// Text in the place of an erased message.
pub const ERASED: &str = "[This message was erased]";
/// Messages of a transcript that are read at a time.
const PORTION: i64 = 200;
/// Ended messages whose summaries are erased by one run of the sweep.
const HELD: i64 = 20;
/// Name under which such a message is set aside.
const ERASE_SUMMARIES: &str = "erase summaries";

/// The stored message in the place of an erased one: a reply's keeps its role, so that user and model still alternate.
pub(super) fn tombstone(erased: Option<&Message>) -> Result<Vec<u8>, StoreError> {
    let message = match erased {
        Some(Message::Assistant { .. }) => Message::assistant(ERASED),
        // A system prompt is a user's, too: the next message brings a new one.
        Some(
            Message::System { .. }
            | Message::User { .. }
            | Message::Notice { .. }
            | Message::Given { .. }
            | Message::Tool { .. },
        )
        | None => Message::user(ERASED),
    };
    message.to_bytes().map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// A message of a transcript, without its text.
struct Place {
    seq: i32,
    execution_id: Uuid,
    replaces: Option<(i32, i32)>,
}

/// Erases the copies that a transcript has of what `execution` said, in the transaction of its erasure. Last in that,
/// because the session stays locked. Returns the other executions that made a summary of it, whose journals are erased
/// afterwards (`erase_summaries`): another erasure may hold them and wait for the session.
pub(crate) async fn erase_from_transcript(
    connection: &mut PgConnection,
    execution: Uuid,
) -> Result<Vec<Uuid>, StoreError> {
    let turn = sqlx::query!(
        r#"
        update sessions s set erasures = erasures + 1 from session_turns t
        where t.execution_id = $1 and s.id = t.session_id
        returning s.id, s.folded, t.number
        "#,
        execution,
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(turn) = turn else { return Ok(Vec::new()) };
    let places = sqlx::query_as!(
        Place,
        r#"
        select seq, execution_id,
            case when replaces_last is not null then (replaces_first, replaces_last) end as "replaces: (i32, i32)"
        from session_messages where session_id = $1 order by seq
        "#,
        turn.id,
    )
    .fetch_all(&mut *connection)
    .await?;
    let (erased, summarised) = reached(&places, execution);
    replace(connection, turn.id, &erased).await?;
    // They began with the texts that are gone now, and may have summarised them; those that are part of the transcript
    // have just been looked at.
    sqlx::query!(
        r#"
        update session_turns set holds_erased = true
        where session_id = $1 and number > greatest($2::int, $3::int) and state <> 'queued'
        "#,
        turn.id,
        turn.number,
        turn.folded,
    )
    .execute(connection)
    .await?;
    Ok(summarised.into_iter().collect())
}

/// Numbers of the messages of `execution`, and of the summaries that stand for them; and the other executions that made
/// such a summary.
fn reached(places: &[Place], execution: Uuid) -> (Vec<i32>, BTreeSet<Uuid>) {
    let (mut context, mut erased, mut summarised) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for place in places {
        let mut is_erased = place.execution_id == execution;
        // As `Entry::join`: the summary takes the place of what it stands for.
        let at = place.replaces.and_then(|(first, last)| {
            let at = context.iter().position(|seq| *seq == first)?;
            let end = context.iter().position(|seq| *seq == last).map_or(at, |end| end + 1);
            Some(at..end.max(at))
        });
        if let Some(at) = at {
            is_erased |= context[at.clone()].iter().any(|seq| erased.contains(seq));
            context.splice(at, [place.seq]);
        } else {
            context.push(place.seq);
        }
        if is_erased {
            erased.insert(place.seq);
            if place.execution_id != execution {
                summarised.insert(place.execution_id);
            }
        }
    }
    (erased.into_iter().collect(), summarised)
}

async fn replace(connection: &mut PgConnection, session: Uuid, seqs: &[i32]) -> Result<(), StoreError> {
    for seqs in seqs.chunks(PORTION as usize) {
        let rows = sqlx::query!(
            "select seq, body from session_messages where session_id = $1 and seq = any ($2)",
            session,
            seqs,
        )
        .fetch_all(&mut *connection)
        .await?;
        let mut bodies = BTreeMap::new();
        for row in rows {
            // What cannot be read is erased as well.
            let read = body::decode(&row.body).ok().and_then(|bytes| Message::from_bytes(&bytes).ok());
            bodies.insert(row.seq, body::encode(&tombstone(read.as_ref())?));
        }
        let (seqs, bodies): (Vec<i32>, Vec<Vec<u8>>) = bodies.into_iter().unzip();
        sqlx::query!(
            r#"
            update session_messages m set body = erased.body, is_erased = true
            from unnest($2::int[], $3::bytea[]) as erased (seq, body)
            where m.session_id = $1 and m.seq = erased.seq
            "#,
            session,
            &seqs,
            &bodies,
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Erases the summaries in the journals of these executions. Their bodies have positions alone, and a retry or fork
/// replays them.
pub(crate) async fn erase_summaries(connection: &mut PgConnection, executions: &[Uuid]) -> Result<(), StoreError> {
    if executions.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        r#"
        update steps set appends = array[$2::bytea], preview = null
        where execution_id = any ($1) and kind = 'compression' and cardinality(appends) > 0
        "#,
        executions,
        body::encode(&tombstone(None)?),
    )
    .execute(connection)
    .await?;
    Ok(())
}

impl Store {
    /// Stops naming the files of a session that neither its transcript nor an execution of it names any more.
    ///
    /// # Errors
    /// Postgres is unavailable; a repeat does the rest.
    pub(crate) async fn release_session_files(&self, execution: Uuid) -> Result<(), StoreError> {
        let named = sqlx::query!(
            r#"
            select f.session_id, encode(f.hash, 'hex') as "hash!" from session_turns t
            join session_files f on f.session_id = t.session_id
            where t.execution_id = $1
            "#,
            execution,
        )
        .fetch_all(&self.pool)
        .await?;
        let Some(session) = named.first().map(|row| SessionId(row.session_id)) else { return Ok(()) };
        let mut unnamed: BTreeSet<String> = named.into_iter().map(|row| row.hash).collect();
        let mut after = 0;
        loop {
            let messages = self.session_messages(session, after, i32::MAX, PORTION).await?;
            let Some(last) = messages.last() else { break };
            after = last.seq;
            for message in &messages {
                let read = Message::from_bytes(&message.bytes);
                let read = read.map_err(|error| StoreError::Corrupt(format!("a message of a session: {error}")))?;
                read.files().for_each(|file| _ = unnamed.remove(&file.hash));
            }
        }
        sqlx::query!(
            r#"
            delete from session_files f
            where f.session_id = $1 and encode(f.hash, 'hex') = any ($2) and not exists (
                select from session_turns t join execution_files e on e.execution_id = t.execution_id
                where t.session_id = f.session_id and e.tenant_id = f.tenant_id and e.hash = f.hash
            )
            "#,
            session.0,
            &unnamed.into_iter().collect::<Vec<_>>(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Erases the summaries of messages that have ended, and that had begun when a message before them was erased; of
    /// one tenant, or of all.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub(crate) async fn erase_held_summaries(&self, tenant: Option<TenantId>) -> Result<(), StoreError> {
        let mut after = Uuid::nil();
        loop {
            let held = sqlx::query!(
                r#"
                select t.session_id, t.execution_id, e.tenant_id from session_turns t
                join executions e on e.id = t.execution_id
                where t.holds_erased and t.state = 'ended' and t.execution_id > $1
                    and ($4::uuid is null or e.tenant_id = $4) and not exists (
                    select from set_aside s
                    where s.what = $3 and s.subject = t.execution_id::text and s.next_at > longhaul_now()
                )
                order by t.execution_id limit $2
                "#,
                after,
                HELD,
                ERASE_SUMMARIES,
                tenant.map(|tenant| tenant.0),
            )
            .fetch_all(&self.pool)
            .await?;
            let Some(last) = held.last() else { return Ok(()) };
            after = last.execution_id;
            for row in held {
                match self.erase_held_summary(SessionId(row.session_id), row.execution_id).await {
                    Err(error) if error.is_about_item() => {
                        let tenant = Some(TenantId(row.tenant_id));
                        self.set_aside(ERASE_SUMMARIES, row.execution_id, tenant, &error).await?;
                    }
                    Err(error) => return Err(error),
                    Ok(()) => self.clear_set_aside(ERASE_SUMMARIES, row.execution_id).await?,
                }
            }
        }
    }

    async fn erase_held_summary(&self, session: SessionId, execution: Uuid) -> Result<(), StoreError> {
        // The fold makes tombstones of the summaries.
        self.fold_session(session).await?;
        let mut transaction = self.pool.begin().await?;
        let is_folded = sqlx::query!(
            r#"
            update session_turns t set holds_erased = false from sessions s
            where t.execution_id = $1 and s.id = t.session_id and s.folded >= t.number
            "#,
            execution,
        )
        .execute(&mut *transaction)
        .await?;
        if is_folded.rows_affected() > 0 {
            erase_summaries(&mut transaction, &[execution]).await?;
        }
        Ok(transaction.commit().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_summaries_are_reached() {
        let [first, second, third, fourth] = [1, 2, 3, 4].map(Uuid::from_u128);
        let place = |seq, execution_id, replaces| Place { seq, execution_id, replaces };
        let places = [
            place(1, first, None),
            place(2, first, None),
            place(3, second, None),
            // Stands for 1 and 2.
            place(4, second, Some((1, 2))),
            place(5, third, None),
            // Stands for the summary 4 and for 3.
            place(6, third, Some((4, 3))),
            // Stands for 5 alone.
            place(7, fourth, Some((5, 5))),
        ];
        assert_eq!(reached(&places, first), (vec![1, 2, 4, 6], BTreeSet::from([second, third])));
        assert_eq!(reached(&places, third), (vec![5, 6, 7], BTreeSet::from([fourth])));
        assert_eq!(reached(&places, fourth), (vec![7], BTreeSet::new()));
    }
}
