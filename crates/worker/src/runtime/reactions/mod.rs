//! What follows an end (docs/design/end.md). The transaction that ends an execution leaves a row in `ends`; the worker
//! that ended it reacts at once, and the sweep's duty `react to ends` takes the rows that no worker took. A feature
//! that reacts is one line in [`REACTIONS`] and one file.
//!
//! A reaction does its work and strikes its row in one transaction. One that fails is put off, with growing pauses, by
//! itself: the rows whose reaction failed form a second line, which the first never waits for.

mod memory;
mod project;
pub(crate) mod reactors;
mod schedule;
mod session;
mod webhook;

use std::time::Duration;

use futures::{
    StreamExt,
    future::{BoxFuture, join_all},
    stream,
};
use longhaul_store::{
    StoreError,
    ends::{Line, Reaction, Subject},
};
use longhaul_telemetry::metrics;
use serde_json::{Value, json};
use tokio::sync::watch;

use self::reactors::AT_A_TIME;
use crate::deps::Deps;

/// Every reaction, each on its own.
const REACTIONS: [(Reaction, React); 5] = [
    (Reaction::Session, |deps, ended| Box::pin(session::pass_turn(deps, ended))),
    (Reaction::Project, |deps, project| Box::pin(project::drive(deps, project))),
    (Reaction::Schedule, |deps, ended| Box::pin(schedule::mark_run(deps, ended))),
    (Reaction::Webhook, |deps, tenant| Box::pin(webhook::tell(deps, tenant))),
    (Reaction::Memory, |deps, ended| Box::pin(memory::take(deps, ended))),
];

type React = for<'a> fn(&'a Deps, &'a Subject) -> BoxFuture<'a, Result<(), StoreError>>;

/// Rows of a reaction in one look, and looks in one go: the duty, or the next end, goes on.
const PORTION: i64 = 500;
const PORTIONS: usize = 20;
/// Time for a subject. One that takes longer goes to the second line, where it has more.
const TIME: Duration = Duration::from_secs(2);
const TIME_AGAIN: Duration = Duration::from_secs(30);

/// Reacts whenever this process has ended something.
pub(super) async fn follow(deps: &Deps, ended: watch::Receiver<()>) {
    let each = REACTIONS.iter().map(|reaction| {
        let mut ended = ended.clone();
        async move {
            while ended.changed().await.is_ok() {
                let _ = deps.store.trouble().on_one_server(react(deps, reaction, Line::First)).await;
            }
        }
    });
    join_all(each).await;
}

/// Reacts to what is due in a line, of all processes.
///
/// # Errors
/// The due rows of a reaction could not be read; the other reactions took theirs.
pub(super) async fn react_to_ends(deps: &Deps, line: Line) -> Result<(), StoreError> {
    let reacted = join_all(REACTIONS.iter().map(|reaction| react(deps, reaction, line))).await;
    reacted.into_iter().collect()
}

/// Reacts until less than a whole portion is due.
async fn react(deps: &Deps, (reaction, react): &(Reaction, React), line: Line) -> Result<(), StoreError> {
    let (reactors, time) = match line {
        Line::First => (&deps.reactors.first, TIME),
        Line::Again => (&deps.reactors.again, TIME_AGAIN),
    };
    for _ in 0..PORTIONS {
        let due = deps.store.due_ends(*reaction, line, PORTION).await?;
        let rows: usize = due.iter().map(|subject| subject.rows.len()).sum();
        stream::iter(&due)
            .for_each_concurrent(AT_A_TIME, |subject| async move {
                let Ok(_permit) = reactors.acquire().await else { return };
                let reacted = tokio::time::timeout(time, react(deps, subject)).await;
                let reacted = reacted.unwrap_or(Err(StoreError::TimedOut(time)));
                if let Err(error) = settle(deps, *reaction, subject, reacted).await {
                    tracing::debug!(reaction = reaction.as_str(), error = %error, "a reaction was not put off");
                }
            })
            .await;
        if (rows as i64) < PORTION {
            break;
        }
    }
    Ok(())
}

/// Puts off what is left of a subject.
async fn settle(
    deps: &Deps,
    reaction: Reaction,
    subject: &Subject,
    reacted: Result<(), StoreError>,
) -> Result<(), StoreError> {
    match reacted {
        Ok(()) if !subject.is_late => Ok(()),
        Ok(()) => deps.store.put_off_ends(reaction, &subject.rows, None).await,
        Err(error) => {
            metrics::reaction_failed(reaction.as_str());
            tracing::warn!(reaction = reaction.as_str(), subject = %subject.id, error = %error, "a reaction failed");
            deps.store.put_off_ends(reaction, &subject.rows, Some(&error.summary())).await
        }
    }
}

/// The duty that counts how far the reactions are behind.
pub(super) async fn count_backlogs(deps: &Deps) -> Result<Value, StoreError> {
    let backlogs = deps.store.reaction_backlogs().await?;
    Ok(backlogs.iter().map(|of| json!([of.reaction, of.late_seconds, of.failing])).collect())
}

pub(super) fn show_backlogs(told: &Value) {
    for of in told.as_array().into_iter().flatten() {
        let Some(reaction) = of[0].as_str().and_then(Reaction::parse) else { continue };
        let late = of[1].as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default();
        metrics::reaction_backlog(reaction.as_str(), late, of[2].as_u64().unwrap_or_default());
    }
}
