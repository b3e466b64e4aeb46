//! `longhaul demo`: runs the example definitions over the repository's sample input.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures::future::join_all;
use longhaul_command::{Exit, context::DATA_DIR, output, signals};
use longhaul_config::{ProviderKind, Sources};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{demo_chat, demo_project, demo_run, demo_schedule};
use crate::{
    client::{Client, Event},
    dev_server::{self, DevServer, DevServerOptions},
    progress,
};

/// Time limit for all executions. The scripted model answers in milliseconds; a real model may need minutes.
const PATIENCE_SCRIPTED: Duration = Duration::from_secs(90);
const PATIENCE_REAL: Duration = Duration::from_secs(900);

/// Watch a durable run that is killed, three example definitions over sample input, a chat that asks before it acts, a
/// project, and a schedule
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Run it in the repository: it applies ./agents and ./definitions and reads ./examples/data. Edit an invoice and run it \
again:
the result changes with it. With no terminal attached, or DEMO_EXIT=1, it stops after the schedule (exit code 0 when all
FINISHED); otherwise it goes on serving until Ctrl-C.")]
pub struct DemoArgs {
    /// Address and port of API and page; a free port if absent
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Data directory
    #[arg(long, value_name = "DIR", default_value_os_t = Path::new(DATA_DIR).join("demo"))]
    data_dir: PathBuf,
    /// Be the script of the durable run
    #[arg(long, hide = true)]
    script: bool,
}

/// One execution of the demo.
struct Sample {
    definition: &'static str,
    label: String,
    input: Value,
}

/// # Errors
/// The sample files are not in the working directory, or the servers do not start.
pub async fn run(args: DemoArgs, mut sources: Sources) -> anyhow::Result<Exit> {
    if args.script {
        return demo_run::script(&sources).await;
    }
    sources.flags.extend(demo_run::settings());
    let samples = samples(Path::new("examples/data"))?;
    let files = dev_server::files(&[])?;
    let listen = match args.listen {
        Some(listen) => listen,
        None => (Ipv4Addr::LOCALHOST, longhaul_embedded::free_port()?).into(),
    };
    let exits = !output::to_terminal() || sources.environment.get("DEMO_EXIT").is_some_and(|value| value == "1");
    let options = DevServerOptions { data_dir: args.data_dir, listen, files };
    let shutdown = CancellationToken::new();
    signals::with_shutdown(shutdown.clone(), async {
        output::note("starting a private PostgreSQL and Redis, the API and a worker …");
        let mut running = DevServer::start(options, sources, shutdown.clone()).await?;
        let client = running.client()?;
        let patience = if running.model_is_scripted() { PATIENCE_SCRIPTED } else { PATIENCE_REAL };
        let shown = tokio::select! {
            shown = show(&client, &mut running, &samples, patience) => shown,
            () = shutdown.cancelled() => Ok(Exit::Failure),
        };
        if shown.is_ok() {
            say_where(&running, exits);
        }
        if exits || shown.is_err() {
            shutdown.cancel();
        }
        let ended = running.ended(&shutdown).await;
        running.stop().await?;
        ended?;
        shown
    })
    .await
}

impl DevServer {
    fn client(&self) -> anyhow::Result<Client> {
        Client::with(&self.url, self.key.clone())
    }

    fn model_is_scripted(&self) -> bool {
        let provider = self.config.llm.providers.get(&self.config.llm.default_provider);
        provider.is_some_and(|provider| provider.kind == ProviderKind::Scripted)
    }
}

/// One execution for each invoice and mail, and one for each of two product categories.
fn samples(data: &Path) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for (definition, dir, field) in [("invoice-extraction", "invoices", "text"), ("mail-triage", "mails", "mail")] {
        let dir = data.join(dir);
        let entries =
            fs::read_dir(&dir).with_context(|| format!("{}: run the demo in the repository", dir.display()))?;
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
        paths.sort();
        for path in paths {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let label = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            samples.push(Sample { definition, label, input: json!({ field: text }) });
        }
    }
    for category in ["garden", "kitchen"] {
        let input = json!({ "category": category });
        samples.push(Sample { definition: "catalogue-enrichment", label: format!("products: {category}"), input });
    }
    Ok(samples)
}

/// Runs the script that is killed, the samples, the chat, the project and a schedule of one sample.
async fn show(client: &Client, server: &mut DevServer, samples: &[Sample], patience: Duration) -> anyhow::Result<Exit> {
    let went_on = demo_run::play(client, server);
    let went_on = timeout(PATIENCE_SCRIPTED, went_on).await.context("the durable run did not end in time")??;
    output::line("\nThe example definitions over sample input:\n");
    let ran = run_samples(client, samples, patience).await?;
    let talked = timeout(patience, demo_chat::talk(client)).await.context("the chat did not end in time")??;
    let planned = timeout(patience, demo_project::run(client)).await.context("the project did not end in time")??;
    let mail = samples.iter().find(|sample| sample.definition == "mail-triage").context("there is no sample mail")?;
    let ticked = demo_schedule::run(client, mail.definition, &mail.input);
    let ticked = timeout(patience, ticked).await.context("the schedule did not tick in time")??;
    let failed = [went_on, ran, talked, planned].into_iter().find(|exit| !matches!(exit, Exit::Done));
    Ok(failed.unwrap_or(ticked))
}

/// Submits all samples and prints their events until all executions are over.
async fn run_samples(client: &Client, samples: &[Sample], patience: Duration) -> anyhow::Result<Exit> {
    let mut submitted = Vec::new();
    for sample in samples {
        let body =
            json!({"definition": sample.definition, "input": sample.input, "metadata": {"sample": sample.label}});
        let answer = client.send(client.request(Method::POST, "/v1/executions").json(&body)).await?;
        let id = answer.body["id"].as_str().context("the answer has no id")?.to_owned();
        print_status(&id, sample, "", "PENDING");
        submitted.push((id, sample));
    }
    let (lines, mut printed) = mpsc::unbounded_channel();
    let followed = join_all(submitted.iter().map(|(id, sample)| {
        let lines = lines.clone();
        async move {
            progress::follow(client, id, |event| {
                let _ = lines.send((id, *sample, event.clone()));
            })
            .await
        }
    }));
    drop(lines);
    let printing = async {
        while let Some((id, sample, event)) = printed.recv().await {
            print_event(id, sample, &event);
        }
    };
    let Ok((ended, ())) = timeout(patience, async { tokio::join!(followed, printing) }).await else {
        bail!("not all executions were over after {} s", patience.as_secs());
    };
    let ended: Vec<Value> = ended.into_iter().collect::<anyhow::Result<_>>()?;
    Ok(print_ends(&ended, &submitted))
}

fn print_event(id: &str, sample: &Sample, event: &Event) {
    match event.kind.as_str() {
        "submitted" => {}
        "finished" => print_status(id, sample, "", "FINISHED"),
        "failed" => print_status(id, sample, &progress::describe(event), "FAILED"),
        "claimed" => print_status(id, sample, "", "IN_PROGRESS"),
        _ => output::line(format!(
            "{} {:<21} {:<24} · {}",
            short(id),
            sample.definition,
            sample.label,
            progress::sentence(event)
        )),
    }
}

fn print_status(id: &str, sample: &Sample, note: &str, status: &str) {
    output::line(format!("{} {:<21} {:<24} {note:<10} {status}", short(id), sample.definition, sample.label));
}

/// The last 12 characters of an id: the first part is a timestamp and the same for all.
fn short(id: &str) -> &str {
    id.get(id.len().saturating_sub(12)..).unwrap_or(id)
}

/// Prints the totals and the first output. [`Exit::Done`] if all executions are FINISHED.
fn print_ends(ended: &[Value], submitted: &[(String, &Sample)]) -> Exit {
    let of =
        |key: &str| ended.iter().map(|execution| execution["usage"][key].as_i64().unwrap_or_default()).sum::<i64>();
    let finished = ended.iter().filter(|execution| execution["status"] == "FINISHED").count();
    output::line(format!(
        "\n{finished} of {} executions finished, in {} model turns and {} tool calls.",
        ended.len(),
        of("turns"),
        of("calls")
    ));
    let mut with_output = ended.iter().zip(submitted).filter(|(execution, _)| execution.get("output").is_some());
    if let Some((execution, (_, sample))) = with_output.next() {
        let result = output::pretty(&execution["output"]);
        output::line(format!("\nThe result of {} on {}:\n\n{result}", sample.definition, sample.label));
    }
    if finished == ended.len() { Exit::Done } else { Exit::ExecutionFailed }
}

fn say_where(running: &DevServer, exits: bool) {
    let env = super::dev::shell_path(running.env_path());
    output::line("\nThe rows, in SQL:\n");
    output::line(format!(
        "  . {env} && psql \"$DATABASE_URL\" -c \"\n    select definition_key, metadata->>'sample' as sample, status, \
         turns, calls, left(output::text, 60) as output\n    from execution_overview order by created_at\""
    ));
    super::dev::say(running);
    let end = if exits { "It stops now; in a terminal it goes on serving." } else { "Ctrl-C stops it." };
    output::line(format!("\n{end}"));
}
