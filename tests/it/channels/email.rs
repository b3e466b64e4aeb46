//! E-mails through a real SMTP server, `aiosmtpd` of PyPI, and their links.

use std::sync::{Arc, Mutex};

use longhaul_webhooks::{Channels, email::Mailer};
use reqwest::Method;
use secrecy::SecretString;
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Child,
};
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::support::{
    api::Answer,
    fleet::PATIENCE,
    wait::{SOON, eventually},
};

/// Prints its port, and then each mail as a line.
const SERVER: &str = r#"
import asyncio, email, json
from email import policy
from aiosmtpd.smtp import SMTP

class Printer:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("refused"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.original_content, policy=policy.default)
        print(json.dumps({
            "to": envelope.rcpt_tos, "subject": mail["subject"], "id": mail["message-id"], "text": mail.get_content(),
        }), flush=True)
        return "250 OK"

async def main():
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(Printer()), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"#;

#[derive(Debug, Clone, Deserialize)]
struct Mail {
    to: Vec<String>,
    subject: String,
    id: String,
    text: String,
}

impl Mail {
    /// Path of the link in it.
    fn link(&self) -> String {
        let at = self.text.find("/v1/channels/email/").unwrap_or_else(|| panic!("{self:?}"));
        self.text[at..].split_whitespace().next().unwrap().to_owned()
    }
}

struct MailServer {
    url: String,
    mails: Arc<Mutex<Vec<Mail>>>,
    _reader: AbortOnDropHandle<()>,
    _child: Child,
}

impl MailServer {
    /// `None` if it cannot be installed here.
    async fn start() -> Option<Self> {
        let python = python("aiosmtpd", "aiosmtpd==1.4.6").await?;
        let mut command = Command::new(python);
        let mut child = command.args(["-c", SERVER]).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = tokio::time::timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().expect("its port");
        let mails = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&mails);
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                taken.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        let url = format!("smtp://127.0.0.1:{port}");
        Some(Self { url, mails, _reader: AbortOnDropHandle::new(reader), _child: child })
    }

    fn channels(&self) -> Channels {
        let url = SecretString::from(self.url.clone());
        let mailer = Mailer::new(&url, "Longhaul <longhaul@example.org>", "https://longhaul.example.org/");
        Channels { sealer: sealer(), mailer: Some(mailer.unwrap()) }
    }

    /// Waits for so many mails; in the order of their recipients.
    async fn until(&self, count: usize) -> Vec<Mail> {
        eventually(&format!("{count} mails"), PATIENCE, async || {
            let mut mails = self.mails.lock().unwrap().clone();
            mails.sort_by(|one, other| one.to.cmp(&other.to));
            if mails.len() >= count { Ok(mails) } else { Err(format!("{mails:#?}")) }
        })
        .await
    }
}

/// Creates a channel for approvals. Returns its id.
async fn channel(owner: &Caller, recipients: &str) -> String {
    let body = json!({"kind": "email", "url": format!("mailto:{recipients}"), "types": ["approval.requested"]});
    let answer = owner.post("/v1/webhooks", &body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.body["id"].as_str().unwrap().to_owned()
}

async fn look(api: &TestApi, link: &str) -> Answer {
    Answer::read(api.nobody().request(Method::GET, link).send().await.unwrap()).await
}

async fn decide(api: &TestApi, link: &str, form: &[(&str, &str)]) -> Answer {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let request = api.nobody().request(Method::POST, link).header("content-type", "application/x-www-form-urlencoded");
    Answer::read(request.body(body).send().await.unwrap()).await
}

#[tokio::test]
async fn link_asks_first_and_decides_once() {
    let Some(server) = MailServer::start().await else { return };
    let desk = Desk::open().await;
    channel(&desk.owner, "ada@example.org,bo@example.org").await;
    let _delivery = desk.api.deliver_to(OPTIONS, server.channels());
    let request = desk.approval().await;
    let mails = server.until(2).await;
    assert_eq!((&mails[0].to[..], &mails[1].to[..]), (&["ada@example.org".into()][..], &["bo@example.org".into()][..]));
    assert_eq!(mails[0].subject, "Approval needed, Agent clerk, Tool pay");
    assert!(mails[0].text.contains(ARGUMENTS) && mails[0].id != mails[1].id, "{mails:#?}");
    assert!(mails[0].text.contains("\nhttps://longhaul.example.org/v1/channels/email/"), "{mails:#?}");
    let (ada, bo) = (mails[0].link(), mails[1].link());
    assert_ne!(ada, bo);
    // Scanners of mail follow links.
    for _ in 0..2 {
        let page = look(&desk.api, &ada).await;
        assert_eq!((page.status, page.header("cache-control")), (200, "no-store"));
        assert!(page.text.contains("&lt;script&gt;") && !page.text.contains("<script>"), "{}", page.text);
        assert!(page.text.contains("value=\"approve\"") && page.text.contains("ada@example.org"), "{}", page.text);
    }
    let head = desk.api.nobody().request(Method::HEAD, &ada).send().await.unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(desk.shown(&request).await["state"], "waiting");
    assert_eq!(decide(&desk.api, &ada, &[("decision", "maybe")]).await.status, 422);
    let decided = decide(&desk.api, &ada, &[("decision", "approve"), ("reason", "fine <b>")]).await;
    assert!(decided.text.contains("approved by ada@example.org"), "{}", decided.text);
    assert_eq!(decided.status, 200);
    for link in [&ada, &bo] {
        let again = decide(&desk.api, link, &[("decision", "reject")]).await;
        assert_eq!(again.status, 409);
        assert!(again.text.contains("approved by ada@example.org"), "{}", again.text);
        let page = look(&desk.api, link).await;
        assert!(page.text.contains("approved by ada@example.org") && !page.text.contains("<form"), "{}", page.text);
    }
    let shown = desk.shown(&request).await;
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("approved"), &json!("fine <b>")));
    assert_eq!(shown["decided_by"]["person"], "ada@example.org");
    assert_eq!(desk.decisions(request.execution_id).await, 1);
    assert_eq!(desk.worker.claim_one().await.id, request.execution_id);
    // A row of the audit log names the approval, and not the link.
    let auditor = desk.api.caller("acme", &[Scope::AuditRead]).await;
    let rows = eventually("a row for each decision", SOON, async || {
        let log = auditor.get("/v1/audit?route=/v1/channels/email/{ticket}").await;
        let entries = log.body["entries"].as_array().cloned().unwrap_or_default();
        if entries.len() == 3 { Ok(entries) } else { Err(log.text) }
    })
    .await;
    for row in rows {
        assert_eq!(row["target"], request.id.to_string(), "{row}");
    }
}

#[tokio::test]
async fn link_of_former_recipient_or_expired_approval_decides_nothing() {
    let Some(server) = MailServer::start().await else { return };
    let desk = Desk::open().await;
    let id = channel(&desk.owner, "ada@example.org,bo@example.org").await;
    let _delivery = desk.api.deliver_to(OPTIONS, server.channels());
    let request = desk.approval().await;
    let mails = server.until(2).await;
    let (ada, bo) = (mails[0].link(), mails[1].link());
    let mut changed = ada.clone();
    changed.pop();
    let put = json!({"url": "mailto:ada@example.org", "types": ["approval.requested"]});
    assert_eq!(desk.owner.put(&format!("/v1/webhooks/{id}"), &put).await.status, 200);
    for link in [&bo, &changed] {
        assert_eq!(look(&desk.api, link).await.status, 404, "{link}");
        assert_eq!(decide(&desk.api, link, &[("decision", "approve")]).await.status, 404, "{link}");
    }
    desk.shift(601.0).await;
    let page = look(&desk.api, &ada).await;
    assert!(page.text.contains("nobody decided before it expired") && !page.text.contains("<form"), "{}", page.text);
    let late = decide(&desk.api, &ada, &[("decision", "approve")]).await;
    assert_eq!(late.status, 409);
    assert!(late.text.contains("nobody decided before it expired"), "{}", late.text);
    assert_eq!(desk.shown(&request).await["state"], "expired");
}

#[tokio::test]
async fn refused_recipient_is_shown_and_others_get_their_mail() {
    let Some(server) = MailServer::start().await else { return };
    let desk = Desk::open().await;
    let id = channel(&desk.owner, "ada@example.org,refused@example.org").await;
    let _delivery = desk.api.deliver_to(OPTIONS, server.channels());
    desk.approval().await;
    server.until(1).await;
    let delivery = eventually("the refusal", PATIENCE, async || {
        let answer = desk.owner.get(&format!("/v1/webhooks/{id}/deliveries")).await;
        let delivery = answer.body["deliveries"][0].clone();
        if delivery["last_error"].is_string() { Ok(delivery) } else { Err(answer.text) }
    })
    .await;
    assert_eq!(delivery["state"], "waiting");
    assert!(delivery["last_error"].as_str().unwrap().contains("no such mailbox"), "{delivery}");
}
