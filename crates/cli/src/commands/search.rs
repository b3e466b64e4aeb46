//! `longhaul search INDEX QUERY`.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::json;

use crate::client::Client;

/// Characters of a result's text.
const SHOWN: usize = 300;

/// Search an index of documents as an agent would
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  longhaul search handbook 'how long is the notice period'
  longhaul search handbook notice --method keyword --top 3")]
pub struct SearchArgs {
    /// Name of the index
    index: String,
    /// Words or a question
    query: String,
    /// Results, at most
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: u32,
    /// semantic, keyword or hybrid; semantic if absent, or keyword if the index has no embeddings
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
}

/// # Errors
/// There is no such index, or the API is unreachable.
pub async fn run(args: SearchArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let mut body = json!({ "query": args.query, "top_k": args.top });
    if let Some(method) = args.method {
        body["search_method"] = method.into();
    }
    let request = client.request(Method::POST, &format!("/v1/indexes/{}/search", args.index)).json(&body);
    let found = client.send(request).await?.body;
    if context.json {
        output::json(&found);
        return Ok(Exit::Done);
    }
    let results = found["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    if results.is_empty() {
        output::line("nothing was found");
    }
    for result in results {
        let text = result["text"].as_str().unwrap_or_default().replace(['\n', '\r'], " ");
        let shown: String = text.chars().take(SHOWN).collect();
        output::line(format!(
            "{:.3}  {}",
            result["score"].as_f64().unwrap_or_default(),
            result["id"].as_str().unwrap_or("-")
        ));
        output::line(format!("       {shown}"));
    }
    Ok(Exit::Done)
}
