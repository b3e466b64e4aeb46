//! `longhaul webhook`: endpoints that are told of ends and requests.

use chrono::{DateTime, Utc};
use longhaul_command::{Context, Exit, output, times};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{client::Client, json_input::text_input};

/// Create, try, list, rotate and delete webhooks, and send events again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A webhook gets a signed POST when an execution ends or is quarantined, or an approval, a question or a call of the
caller's tools waits for an answer. Its signature is that of Standard Webhooks. With --kind slack or email it is a \
channel:
people get messages, and decide on approvals in them.

Examples:
  longhaul webhook create https://example.org/longhaul
  longhaul webhook create https://example.org/people --type approval.requested --type question.asked
  longhaul webhook create --kind slack https://hooks.slack.com/services/T0/B0/x --signing-secret @secret.txt
  longhaul webhook create --kind email mailto:ada@example.org --type approval.requested
  longhaul webhook test 0197fca0-1c6e-7aa2-9a40-6a3d7b0f2a11
  longhaul webhook deliveries 0197fca0-1c6e-7aa2-9a40-6a3d7b0f2a11 --state failed
  longhaul webhook redeliver 0197fca0-1c6e-7aa2-9a40-6a3d7b0f2a11 --failed-since 2026-11-20T00:00:00Z")]
pub struct WebhookArgs {
    #[command(subcommand)]
    command: WebhookCommand,
}

#[derive(Debug, clap::Subcommand)]
enum WebhookCommand {
    /// Create a webhook, and print its secret
    Create(WrittenArgs),
    /// Replace a webhook; its secret stays
    Replace {
        id: String,
        #[command(flatten)]
        written: WrittenArgs,
        /// Send nothing to it
        #[arg(long)]
        disabled: bool,
    },
    /// List the webhooks
    List,
    /// Show one webhook
    Show { id: String },
    /// Send an event of the type webhook.test
    Test { id: String },
    /// Give it a new secret, and print it
    Rotate {
        id: String,
        /// Seconds for which the secret before signs as well; a day if absent
        #[arg(long, value_name = "SECONDS")]
        overlap: Option<u32>,
    },
    /// List its deliveries, newest first
    Deliveries {
        id: String,
        /// Only those: waiting, delivered or failed
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// Deliveries to show, at most 200
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
    },
    /// Send one delivery again, or all that were given up
    Redeliver {
        id: String,
        /// This delivery
        #[arg(required_unless_present = "failed_since")]
        delivery: Option<String>,
        /// Those given up of events since this time, such as 2026-12-01 or 1d
        #[arg(long, value_name = "TIME", conflicts_with = "delivery", value_parser = times::past)]
        failed_since: Option<DateTime<Utc>>,
    },
    /// Delete a webhook with its deliveries
    Delete { id: String },
}

#[derive(Debug, clap::Args)]
struct WrittenArgs {
    /// Address of the receiver: of Slack an incoming webhook, of e-mail mailto:A,B
    url: String,
    /// standard, slack or email; standard if absent
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Signing secret of the Slack app, @FILE, or - for standard input; a replacement without it keeps it
    #[arg(long, value_name = "SECRET")]
    signing_secret: Option<String>,
    /// Note for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Type of events that it is told, repeatable; all if absent
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
}

impl WrittenArgs {
    fn body(&self, is_enabled: bool) -> anyhow::Result<Value> {
        let types = (!self.types.is_empty()).then_some(&self.types);
        let secret = self.signing_secret.as_deref().map(|from| text_input("--signing-secret", from)).transpose()?;
        Ok(json!({
            "kind": self.kind, "url": self.url, "signing_secret": secret.as_deref().map(str::trim),
            "description": self.description, "types": types, "enabled": is_enabled,
        }))
    }
}

/// # Errors
/// The API refuses, or it is unreachable.
pub async fn run(args: WebhookArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let at = |id: &str, rest: &str| format!("/v1/webhooks/{id}{rest}");
    let post = |path: &str, body: &Value| client.request(Method::POST, path).json(body);
    let answer = match args.command {
        WebhookCommand::Create(written) => client.send(post("/v1/webhooks", &written.body(true)?)).await?.body,
        WebhookCommand::Replace { id, written, disabled } => {
            let request = client.request(Method::PUT, &at(&id, "")).json(&written.body(!disabled)?);
            client.send(request).await?.body
        }
        WebhookCommand::List => client.get("/v1/webhooks").await?,
        WebhookCommand::Show { id } => client.get(&at(&id, "")).await?,
        WebhookCommand::Test { id } => client.send(post(&at(&id, "/test"), &json!({}))).await?.body,
        WebhookCommand::Rotate { id, overlap } => {
            let body = overlap.map_or(json!({}), |seconds| json!({ "overlap_seconds": seconds }));
            client.send(post(&at(&id, "/rotate"), &body)).await?.body
        }
        WebhookCommand::Deliveries { id, state, limit } => {
            let mut request = client.request(Method::GET, &at(&id, "/deliveries")).query(&[("limit", limit)]);
            if let Some(state) = state {
                request = request.query(&[("state", state)]);
            }
            client.send(request).await?.body
        }
        WebhookCommand::Redeliver { id, delivery, failed_since } => {
            let body = match failed_since {
                Some(since) => json!({ "failed_since": since }),
                None => json!({ "delivery_id": delivery }),
            };
            client.send(post(&at(&id, "/redeliver"), &body)).await?.body
        }
        WebhookCommand::Delete { id } => {
            client.send(client.request(Method::DELETE, &at(&id, ""))).await?;
            output::note(format!("the webhook {id} is deleted"));
            return Ok(Exit::Done);
        }
    };
    if context.json {
        output::json(&answer);
    } else {
        show(&answer);
    }
    Ok(Exit::Done)
}

fn show(answer: &Value) {
    let rows = |name: &str| answer[name].as_array().map(Vec::as_slice);
    if let Some(webhooks) = rows("webhooks") {
        if webhooks.is_empty() {
            output::line("there are no webhooks");
        }
        webhooks.iter().for_each(show_webhook);
    } else if let Some(deliveries) = rows("deliveries") {
        if deliveries.is_empty() {
            output::line("nothing was sent yet");
        }
        deliveries.iter().for_each(show_delivery);
    } else if let Some(number) = answer["redelivered"].as_u64() {
        output::line(format!("{number} deliveries are sent again"));
    } else if let Some(id) = answer["delivery_id"].as_str() {
        output::line(id);
    } else {
        show_webhook(answer);
        if let Some(secret) = answer["secret"].as_str() {
            output::note("its secret, which is not shown again:");
            output::line(secret);
        }
    }
}

fn show_webhook(webhook: &Value) {
    let state = match (webhook["disabled_because"].as_str(), webhook["failing_since"].as_str()) {
        (Some(because), _) => format!("disabled ({because})"),
        (None, Some(since)) => format!("failing since {since}"),
        (None, None) => "enabled".to_owned(),
    };
    let types = webhook["types"].as_array().into_iter().flatten().filter_map(Value::as_str);
    output::line(format!(
        "{}  {}  {}  {state}  {} waiting  {}",
        text(webhook, "id"),
        text(webhook, "kind"),
        text(webhook, "url"),
        webhook["waiting"],
        types.collect::<Vec<_>>().join(","),
    ));
}

fn show_delivery(delivery: &Value) {
    output::line(format!(
        "{}  {:<22}  {:<9}  {} attempts  {}  {}",
        text(delivery, "id"),
        text(delivery, "type"),
        text(delivery, "state"),
        delivery["attempts"],
        text(delivery, "execution_id"),
        delivery["last_error"].as_str().unwrap_or_default(),
    ));
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or("-")
}
