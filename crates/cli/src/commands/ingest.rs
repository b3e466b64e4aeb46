//! `longhaul ingest`: puts files into an index that agents search.

use std::{
    io::{BufRead, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::client::{Client, ClientError};

/// Largest number of documents in a request; the API accepts 100.
const BATCH_DOCUMENTS: usize = 25;
/// Largest size of their texts in a request, unless one document alone is larger; the API accepts 4 MiB.
const BATCH_BYTES: usize = 1024 * 1024;
/// Attempts of a request while the embedder is unavailable. Documents already stored are not embedded again.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(2);

/// Put documents into an index that agents search
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Files and everything below directories: .md and .markdown as Markdown, .txt as text, .jsonl as one document a line:
{\"id\": \"…\", \"text\": \"…\", \"metadata\": {…}, \"format\": \"text|markdown\"}. The id of a file is its path as \
given. What has not
changed since it was put is not embedded again, so the same command may be repeated. Needs a key with the scope
definitions:write.

Examples:
  longhaul ingest handbook docs/handbook
  longhaul ingest faq faq.jsonl --metadata lang=en
  cat notes.txt | longhaul ingest notes - --id notes-2026")]
pub struct IngestArgs {
    /// Index to add to; created if it does not exist
    index: String,
    /// Files, directories, or - for standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    /// Format of input without a known file extension
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Id of the document on standard input
    #[arg(long, default_value = "stdin")]
    id: String,
    /// Metadata to add to every document; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Split at sentences and paragraphs
    Text,
    /// Split at headings, too
    Markdown,
    /// Read one document per line
    Jsonl,
}

#[derive(Debug, Default)]
struct Counts {
    stored: u64,
    unchanged: u64,
    chunks: u64,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// # Errors
/// A file cannot be read, or the API refuses a request. Documents of earlier requests stay stored.
pub async fn run(args: IngestArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let documents = documents(&args)?;
    anyhow::ensure!(!documents.is_empty(), "there are no documents in {}", args.paths.join(", "));
    let bar = ProgressBar::new(u64::try_from(documents.len()).unwrap_or(u64::MAX));
    if context.json {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} documents {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut counts = Counts::default();
    for batch in batches(&documents) {
        if let Some(first) = batch.first().and_then(|document| document["id"].as_str()) {
            bar.set_message(first.to_owned());
        }
        put(&client, &args.index, batch, &mut counts).await?;
        bar.inc(u64::try_from(batch.len()).unwrap_or_default());
    }
    bar.finish_and_clear();
    let Counts { stored, unchanged, chunks } = counts;
    if context.json {
        output::json(&json!({"index": args.index, "stored": stored, "unchanged": unchanged, "chunks": chunks}));
    } else {
        output::line(format!("{}: {stored} stored, {unchanged} unchanged; {chunks} chunks", args.index));
    }
    Ok(Exit::Done)
}

async fn put(client: &Client, index: &str, batch: &[Value], counts: &mut Counts) -> anyhow::Result<()> {
    let body = json!({ "documents": batch });
    let mut attempt = 1;
    let answer = loop {
        let request = client.request(Method::POST, &format!("/v1/indexes/{index}/documents"));
        // Embedding a megabyte may exceed the client's read timeout.
        let sent = client.send(request.timeout(Duration::from_secs(600)).json(&body)).await;
        match sent {
            Ok(answer) => break answer,
            Err(ClientError::Problem(problem)) if problem.is_unavailable() && attempt < ATTEMPTS => {
                attempt += 1;
                tokio::time::sleep(PAUSE * attempt).await;
            }
            Err(error) => return Err(error.into()),
        }
    };
    for document in answer.body["documents"].as_array().into_iter().flatten() {
        match document["status"].as_str() {
            Some("stored") => counts.stored += 1,
            Some(_) | None => counts.unchanged += 1,
        }
        counts.chunks += document["chunks"].as_u64().unwrap_or_default();
    }
    Ok(())
}

fn batches(documents: &[Value]) -> impl Iterator<Item = &[Value]> {
    let mut rest = documents;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(BATCH_DOCUMENTS).take_while(|document| {
            bytes += document["text"].as_str().map_or(0, str::len);
            bytes <= BATCH_BYTES
        });
        let count = fits.count().max(1);
        let (batch, after) = rest.split_at_checked(count)?;
        rest = after;
        Some(batch)
    })
}

fn documents(args: &IngestArgs) -> anyhow::Result<Vec<Value>> {
    let mut documents = Vec::new();
    for path in &args.paths {
        if path == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("standard input is not text")?;
            read(&args.id, None, &text, args.format, &mut documents)?;
            continue;
        }
        let mut files = Vec::new();
        find(Path::new(path), true, &mut files)?;
        for file in files {
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let format = format_of(&file).unwrap_or(args.format);
            let id = file.to_string_lossy().trim_start_matches("./").replace('\\', "/");
            read(&id, Some(&file), &text, format, &mut documents).with_context(|| file.display().to_string())?;
        }
    }
    for document in &mut documents {
        for (key, value) in &args.metadata {
            document["metadata"][key] = value.as_str().into();
        }
    }
    Ok(documents)
}

/// Adds `path` itself if it was named on the command line; below a directory, the files with a known extension, in
/// order of name.
fn find(path: &Path, is_named: bool, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let kind = std::fs::metadata(path).with_context(|| path.display().to_string())?;
    if kind.is_dir() {
        let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
        let mut entries: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        entries.sort();
        for entry in entries {
            // Do not follow links: they may form a cycle.
            if !std::fs::symlink_metadata(&entry).is_ok_and(|kind| kind.is_symlink()) {
                find(&entry, false, files)?;
            }
        }
    } else if is_named || format_of(path).is_some() {
        files.push(path.to_owned());
    }
    Ok(())
}

fn format_of(path: &Path) -> Option<Format> {
    match path.extension()?.to_str()? {
        "md" | "markdown" => Some(Format::Markdown),
        "txt" => Some(Format::Text),
        "jsonl" | "ndjson" => Some(Format::Jsonl),
        _ => None,
    }
}

fn read(id: &str, file: Option<&Path>, text: &str, format: Format, documents: &mut Vec<Value>) -> anyhow::Result<()> {
    if format == Format::Jsonl {
        for (number, line) in (1..).zip(text.as_bytes().lines()) {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let mut document: Map<String, Value> =
                serde_json::from_str(&line).with_context(|| format!("line {number} is no JSON object"))?;
            document.entry("metadata").or_insert_with(|| json!({}));
            anyhow::ensure!(document["metadata"].is_object(), "line {number}: metadata is no object");
            documents.push(document.into());
        }
        return Ok(());
    }
    // An empty file has no text to index.
    if text.trim().is_empty() {
        return Ok(());
    }
    let mut metadata = Map::new();
    if let Some(file) = file {
        let title = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        metadata.insert("title".into(), title.unwrap_or_default().into());
        metadata.insert("source_path".into(), id.into());
    }
    let format = if format == Format::Markdown { "markdown" } else { "text" };
    documents.push(json!({"id": id, "text": text, "metadata": metadata, "format": format}));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_lines_become_documents() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("b/guide.md", "# Guide");
        write("a.txt", "plain");
        write("empty.txt", " \n");
        write("image.png", "no text");
        write(
            "c.jsonl",
            "{\"id\": \"x\", \"text\": \"one\"}\n\n{\"id\": \"y\", \"text\": \"two\", \"metadata\": {\"k\": 1}}\n",
        );
        let args = IngestArgs {
            index: "kb".into(),
            paths: vec![dir.path().to_string_lossy().into_owned()],
            format: Format::Text,
            id: "stdin".into(),
            metadata: vec![("lang".into(), "en".into())],
        };
        let documents = documents(&args).unwrap();
        let seen: Vec<_> = documents
            .iter()
            .map(|document| {
                (document["text"].as_str().unwrap(), document["format"].as_str(), document["metadata"].clone())
            })
            .collect();
        let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        assert_eq!(
            seen,
            [
                ("plain", Some("text"), json!({"title": "a", "source_path": path("a.txt"), "lang": "en"})),
                (
                    "# Guide",
                    Some("markdown"),
                    json!({"title": "guide", "source_path": path("b/guide.md"), "lang": "en"})
                ),
                ("one", None, json!({"lang": "en"})),
                ("two", None, json!({"k": 1, "lang": "en"})),
            ]
        );
        assert_eq!(documents[2]["id"], "x");
        std::fs::write(dir.path().join("bad.jsonl"), "{\"id\": \"x\"}\n[1]\n").unwrap();
        let error = format!("{:#}", super::documents(&args).unwrap_err());
        assert!(error.contains("bad.jsonl") && error.contains("line 2"), "{error}");
    }

    #[test]
    fn batches_are_bounded_by_count_and_bytes() {
        let document = |bytes: usize| json!({"text": "x".repeat(bytes)});
        let sizes = |documents: Vec<Value>| batches(&documents).map(<[Value]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![document(1); 60]), [25, 25, 10]);
        assert_eq!(sizes(vec![document(600 * 1024); 3]), [1, 1, 1]);
        assert_eq!(sizes(vec![document(2 << 20), document(1)]), [1, 1]);
    }
}
