//! Messages to people, before they are written for a chat or as an e-mail.

use chrono::{DateTime, Utc};
use longhaul_domain::{HumanRequestId, RequestKind, RequestState, TenantId};
use longhaul_store::{
    Store, StoreError,
    executions::read::ExecutionRecord,
    human_requests::HumanRequest,
    webhooks::{Due, EventType},
};

/// A message. `title`, the names of facts and `note` are ours; the rest may be written by models and callers.
#[derive(Debug, Clone)]
pub struct Message {
    pub title: &'static str,
    pub facts: Vec<(&'static str, String)>,
    /// Arguments of a call, a question, an output or a failure.
    pub body: Option<String>,
    /// Hint for the reader.
    pub note: Option<String>,
    /// The approval that waits for a decision.
    pub asks: Option<Box<HumanRequest>>,
}

impl Message {
    /// The message that tells of `due`. `None` if there is nothing to tell any more: the request was decided, or the
    /// execution was deleted.
    ///
    /// # Errors
    /// Postgres is unavailable, or a row cannot be read.
    pub(crate) async fn of(store: &Store, tenant: TenantId, due: &Due) -> Result<Option<Self>, StoreError> {
        // The event may be one of a later release.
        let Some(event) = EventType::parse(&due.event) else { return Ok(None) };
        match event {
            EventType::Test => Ok(Some(Self::test())),
            EventType::ExecutionFinished => Self::end(store, tenant, due, "Execution finished").await,
            EventType::ExecutionFailed => Self::end(store, tenant, due, "Execution failed").await,
            EventType::ExecutionQuarantined => Self::end(store, tenant, due, "Execution quarantined").await,
            EventType::ApprovalRequested => Self::request(store, tenant, due, RequestKind::Approval).await,
            EventType::QuestionAsked => Self::request(store, tenant, due, RequestKind::Question).await,
            EventType::ToolCallRequested => Self::request(store, tenant, due, RequestKind::ToolCall).await,
        }
    }

    async fn end(store: &Store, tenant: TenantId, due: &Due, title: &'static str) -> Result<Option<Self>, StoreError> {
        let Some(id) = due.execution else { return Ok(None) };
        let found = store.get_execution(&tenant.into(), id).await?;
        Ok(found.map(|record| Self::of_execution(title, &record)))
    }

    async fn request(
        store: &Store,
        tenant: TenantId,
        due: &Due,
        kind: RequestKind,
    ) -> Result<Option<Self>, StoreError> {
        let Some(id) = due.request else { return Ok(None) };
        let found = store.get_request(&tenant.into(), kind, HumanRequestId(id)).await?;
        Ok(found.filter(waits).map(Self::of_request))
    }

    fn test() -> Self {
        Self { title: "This is a test message of Longhaul", facts: Vec::new(), body: None, note: None, asks: None }
    }

    fn of_execution(title: &'static str, record: &ExecutionRecord) -> Self {
        let of = &record.summary;
        let mut facts = vec![
            ("Execution", of.id.to_string()),
            ("Definition", of.definition_key.clone()),
            ("Agent", of.agent_key.clone()),
        ];
        facts.extend(of.failure_code.clone().map(|code| ("Failure", code)));
        let output = record.output.as_ref().map(|output| {
            // A text is shown as it is, and not as JSON.
            serde_json::from_str(output.get()).unwrap_or_else(|_| output.get().to_owned())
        });
        Self { title, facts, body: of.failure_summary.clone().or(output), note: None, asks: None }
    }

    /// A request as people are asked. Values that are secret are hidden.
    #[must_use]
    pub fn of_request(request: HumanRequest) -> Self {
        let mut facts = vec![("Agent", request.agent_key.clone()), ("Tool", request.tool.clone())];
        facts.extend(request.policy.clone().map(|rule| ("Rule", rule)));
        facts.push(("Execution", request.execution_id.to_string()));
        facts.push(("Expires", time(request.expires_at)));
        let (title, note) = match request.kind {
            RequestKind::Approval if waits(&request) => ("Approval needed", None),
            RequestKind::Approval => ("Approval", None),
            RequestKind::Question => {
                ("Question", Some(format!("Answer it with: longhaul questions answer {}", request.id)))
            }
            RequestKind::ToolCall => ("Call for its caller", None),
        };
        let body = match request.kind {
            RequestKind::Approval => request.visible(&request.arguments),
            RequestKind::Question | RequestKind::ToolCall => None,
        };
        let body = Some(body.unwrap_or_else(|| request.shown.clone()));
        let asks = (request.kind == RequestKind::Approval && waits(&request)).then(|| Box::new(request));
        Self { title, facts, body, note, asks }
    }
}

fn waits(request: &HumanRequest) -> bool {
    request.state == RequestState::Waiting && !request.is_overdue && !request.execution_is_over
}

pub(crate) fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M UTC").to_string()
}
