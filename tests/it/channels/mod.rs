//! Channels: approvals decided by clicks in Slack and by links in e-mails, over real HTTP and SMTP.

mod email;
mod requests;
mod slack;
mod slack_sdk;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use longhaul_api::{ApiOptions, ContractOptions};
use longhaul_domain::ExecutionId;
use longhaul_domain::RequestKind;
use longhaul_domain::WaitReason;
use longhaul_guards::sealing::Sealer;
use longhaul_store::{
    human_requests::{HumanRequest, NewHumanRequest},
    tenants::api_keys::Scope,
};
use longhaul_webhooks::WebhookOptions;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{
    api::{Caller, EVERYDAY, TestApi},
    leases::{Conclusion, TestWorker},
};

/// Delivers to this machine.
const OPTIONS: WebhookOptions = WebhookOptions {
    allow_private: true,
    timeout: Duration::from_secs(20),
    patience: Duration::from_secs(5 * 86_400),
    at_once: 32,
};
const ARGUMENTS: &str = r#"{"amount": 1e2,  "to": "<!channel> ``` <script>"}"#;
/// Scopes of a key that makes channels.
const CHANNELS: &[Scope] = &[Scope::ExecutionsRead, Scope::ExecutionsWrite, Scope::ApprovalsDecide, Scope::Admin];

/// An API whose tenant `acme` submits with one key and has channels with another.
struct Desk {
    api: TestApi,
    worker: TestWorker,
    owner: Caller,
}

fn sealer() -> Sealer {
    Sealer::new(&["a key of the tests that seals secrets".into()])
}

impl Desk {
    async fn open() -> Self {
        let api = TestApi::start_with(ApiOptions {
            private_webhooks: true,
            has_email: true,
            contract: ContractOptions { sealer: sealer(), ..ContractOptions::default() },
            ..ApiOptions::default()
        })
        .await;
        let worker = TestWorker::start(&api.store).await;
        let owner = api.caller("acme", CHANNELS).await;
        Self { api, worker, owner }
    }

    /// Parks an execution until its call is decided.
    async fn approval(&self) -> HumanRequest {
        self.approval_of(ARGUMENTS, &self.api.acme).await
    }

    async fn approval_of(&self, arguments: &str, submitter: &Caller) -> HumanRequest {
        let body = json!({"definition": "invoice", "input": {"text": "total 12"}});
        let submitted = submitter.post("/v1/executions", &body).await;
        assert_eq!(submitted.status, 201, "{}", submitted.text);
        let claimed = self.worker.claim_one().await;
        let request = NewHumanRequest {
            execution_id: claimed.id,
            token: claimed.token,
            kind: RequestKind::Approval,
            call_key: [1; 32],
            call_id: "call_1".into(),
            round: 0,
            tool: "pay".into(),
            arguments: arguments.into(),
            shown: "pay 100".into(),
            redact: Vec::new(),
            schema: None,
            policy: Some("pay: ask".into()),
            allow_self: false,
            expires_in: Duration::from_secs(600),
        };
        let request = self.worker.writer.request(request).await.unwrap();
        let park = Conclusion::Park { reason: WaitReason::Approval, wait: None, wake_seq: claimed.wake_seq };
        self.worker.end(&claimed, park).await.unwrap();
        request
    }

    /// The approval as the API shows it.
    async fn shown(&self, request: &HumanRequest) -> Value {
        let answer = self.owner.get(&format!("/v1/approvals/{}", request.id)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    }

    /// Decisions among the events of an execution.
    async fn decisions(&self, id: ExecutionId) -> usize {
        let events = self.owner.get(&format!("/v1/executions/{id}/events")).await.body;
        let kinds = events["events"].as_array().unwrap().iter();
        kinds.filter(|event| event["kind"] == "approval_decided").count()
    }

    /// Makes the database's clock go forward.
    async fn shift(&self, seconds: f64) {
        sqlx::query("update clock set shift = shift + $1 * interval '1 second'")
            .bind(seconds)
            .execute(&self.api.db.pool)
            .await
            .unwrap();
    }
}

/// A Python with `package`, which can import `module`; `None` if pip cannot install it here.
async fn python(module: &str, package: &str) -> Option<PathBuf> {
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("channels-python-{module}"));
    let python = venv.join("bin/python");
    let runs = async |command: &mut Command| {
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().await.is_ok_and(|status| status.success())
    };
    let has = async || runs(Command::new(&python).args(["-c", &format!("import {module}")])).await;
    if !has().await {
        runs(Command::new("python3").arg("-m").arg("venv").arg(&venv)).await;
        runs(Command::new(&python).args(["-m", "pip", "install", "--quiet", package])).await;
    }
    let is_there = has().await;
    if !is_there {
        eprintln!("SKIPPED: pip cannot install {package} here");
    }
    is_there.then_some(python)
}
