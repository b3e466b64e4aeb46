//! State of an execution that was just stored, derived from the submit instead of read back.

use longhaul_sdk::Usd;

use crate::{
    StoreError,
    executions::{
        read::{ExecutionRecord, ExecutionSummary, raw},
        submit::{Beginning, NewExecution},
    },
    tenants::api_keys::ApiKey,
};
use longhaul_domain::ExecutionStatus;

/// Numbers of the versions that an execution is pinned to.
#[derive(Debug, Clone, Copy)]
pub struct Versions {
    pub definition: i32,
    pub agent: i32,
}

impl ExecutionRecord {
    /// The record that [`get_execution`](crate::Store::get_execution) would return after the submit, before a
    /// worker claims the execution. `owner` is the key that submitted it. Numbers in its metadata keep their
    /// form, while Postgres would write out all of their digits.
    ///
    /// # Errors
    /// The input is not JSON.
    pub fn begun(
        new: &NewExecution,
        beginning: Beginning,
        versions: Versions,
        owner: &ApiKey,
    ) -> Result<Self, StoreError> {
        let summary = ExecutionSummary {
            id: new.id,
            tenant_id: new.tenant_id,
            org_id: owner.org_id.clone(),
            group_id: owner.group_id.clone(),
            definition_key: new.definition_key.clone(),
            definition_version: Some(versions.definition),
            agent_key: new.agent_key.clone(),
            agent_version: Some(versions.agent),
            queue: new.queue.clone(),
            priority: new.priority,
            status: ExecutionStatus::Pending,
            wait_reason: Some(beginning.wait_reason),
            wait_until: beginning.wait_until,
            failure_class: None,
            failure_code: None,
            failure_summary: None,
            attempts: 0,
            retries: [0; 3],
            turns: 0,
            calls: 0,
            input_tokens: 0,
            output_tokens: 0,
            cached_tokens: 0,
            cache_write_tokens: 0,
            cost: Usd::ZERO,
            uncosted_turns: 0,
            active_seconds: 0.0,
            created_at: beginning.created_at,
            started_at: None,
            finished_at: None,
            deadline_at: beginning.deadline_at,
            cancel_requested_at: None,
            erased_at: None,
            retry_of: None,
            forked_from: None,
            forked_before: None,
            parent: None,
            root: new.id,
            depth: 0,
            children: 0,
            submitted_by: new.submitted_by,
            traceparent: new.traceparent.clone(),
            worker_id: None,
            metadata: new.metadata.clone(),
            event_seq: 1,
        };
        Ok(Self { summary, input: raw(new.input.clone())?, output: None, failure_detail: None })
    }
}
