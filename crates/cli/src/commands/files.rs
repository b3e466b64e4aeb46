//! `longhaul files` and `longhaul artifacts`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use longhaul_command::{Context, Exit, output};
use reqwest::{Method, header};
use serde_json::{Value, json};

use crate::{client::Client, progress};

/// Upload, download and delete the files that messages name
#[derive(Debug, clap::Args)]
#[command(after_help = "\
PNG, JPEG, WebP, PDF and UTF-8 text, at most 20 MiB. An upload expires after a week; what a message names is kept.

Examples:
  longhaul files put invoice.pdf
  longhaul files get file_019a2c3e5b7f7d10a1b2c3d4e5f60718 --out invoice.pdf")]
pub struct FilesArgs {
    #[command(subcommand)]
    command: FilesCommand,
}

#[derive(Debug, clap::Subcommand)]
enum FilesCommand {
    /// Upload a file and print its id
    Put {
        path: PathBuf,
        /// Its name; that of the path when absent
        #[arg(long)]
        name: Option<String>,
    },
    /// Download a file
    Get {
        id: String,
        /// Path to write to; by default its own name in this folder
        #[arg(long, value_name = "PATH")]
        out: Option<PathBuf>,
    },
    /// Delete an upload; its bytes stay while an input or an artifact names them
    Delete { id: String },
}

/// List the files that an execution left, or download one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  longhaul artifacts 019a2c3e-…
  longhaul artifacts 019a2c3e-… plot.png --out plot.png")]
pub struct ArtifactsArgs {
    /// Id of the execution
    id: String,
    /// Name or id of the file to download
    file: Option<String>,
    /// Path to write to; by default its own name in this folder
    #[arg(long, value_name = "PATH", requires = "file")]
    out: Option<PathBuf>,
}

/// # Errors
/// The file cannot be read or written, or the API refuses.
pub async fn run(args: FilesArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    match args.command {
        FilesCommand::Put { path, name } => {
            let file = upload(&client, &path, name).await?;
            if context.json {
                output::json(&file);
            } else {
                output::line(text(&file, "file_id"));
            }
        }
        FilesCommand::Get { id, out } => {
            let file = client.get(&format!("/v1/files/{id}")).await?;
            let name = file["name"].as_str().unwrap_or(&id).to_owned();
            save(&client, &format!("/v1/files/{id}/content"), (out, &name), context).await?;
        }
        FilesCommand::Delete { id } => {
            client.send(client.request(Method::DELETE, &format!("/v1/files/{id}"))).await?;
            if context.json {
                output::json(&json!({ "deleted": id }));
            } else {
                output::line(format!("deleted {id}"));
            }
        }
    }
    Ok(Exit::Done)
}

/// Uploads a file under `name`, or under its own, and returns its record.
///
/// # Errors
/// The file cannot be read, or the API refuses.
pub(super) async fn upload(client: &Client, path: &Path, name: Option<String>) -> anyhow::Result<Value> {
    let bytes = tokio::fs::read(path).await.with_context(|| format!("cannot read {}", path.display()))?;
    let own = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let request = client
        .request(Method::POST, "/v1/files")
        .query(&[("name", name.or(own).unwrap_or_default())])
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .body(bytes);
    Ok(client.send(request).await?.body)
}

/// # Errors
/// The file cannot be written, or the API refuses.
pub async fn artifacts(args: ArtifactsArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let path = format!("{}/artifacts", progress::path(&args.id));
    let listed = client.get(&path).await?;
    let all = listed["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(wanted) = args.file {
        // By id: a name may hold characters that a path encodes.
        let is_wanted = |file: &&Value| file["file_id"] == wanted.as_str() || file["name"] == wanted.as_str();
        let found = all.iter().rfind(is_wanted);
        let id = found.map_or_else(|| wanted.clone(), |file| text(file, "file_id"));
        let name = found.and_then(|file| file["name"].as_str()).unwrap_or(&wanted);
        save(&client, &format!("{path}/{id}"), (args.out, name), context).await?;
        return Ok(Exit::Done);
    }
    if context.json {
        output::json(&listed);
        return Ok(Exit::Done);
    }
    if all.is_empty() {
        output::line("it left no files");
    }
    for file in all {
        output::line(format!(
            "{}  {:>10}  {:<24}  {}  sha256 {}",
            text(file, "file_id"),
            file["size"].to_string(),
            text(file, "type"),
            text(file, "name"),
            text(file, "sha256"),
        ));
    }
    Ok(Exit::Done)
}

/// Downloads to `out`, or to the file's own name in this directory if nothing is there.
async fn save(
    client: &Client,
    path: &str,
    (out, name): (Option<PathBuf>, &str),
    context: &Context,
) -> anyhow::Result<()> {
    // A name of another's choice must not lead out of this directory.
    let own = Path::new(name).file_name().map_or_else(|| PathBuf::from("file"), PathBuf::from);
    anyhow::ensure!(out.is_some() || !own.exists(), "{} exists; say --out", own.display());
    let place = out.unwrap_or(own);
    let bytes = client.download(path).await?;
    tokio::fs::write(&place, &bytes).await.with_context(|| format!("cannot write {}", place.display()))?;
    if context.json {
        output::json(&json!({ "path": place, "size": bytes.len() }));
    } else {
        output::line(format!("{} ({} bytes)", place.display(), bytes.len()));
    }
    Ok(())
}

fn text(file: &Value, field: &str) -> String {
    file[field].as_str().unwrap_or("-").to_owned()
}
