//! The time to read an execution's history through the API.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use longhaul_domain::ExecutionId;
use reqwest::Method;
use serde_json::{Value, json};

use super::{super::environment::Caller, window::median};

/// Readings of each history, after one that warms the caches.
const READINGS: usize = 9;

/// A list of an execution, and its longest page.
struct List {
    name: &'static str,
    /// Name of the entries in the body.
    entries: &'static str,
    query: &'static str,
    limit: usize,
}

const LISTS: [List; 3] = [
    List { name: "steps", entries: "steps", query: "", limit: 500 },
    List { name: "steps with bodies", entries: "steps", query: "&include=body", limit: 50 },
    List { name: "events", entries: "events", query: "", limit: 1_000 },
];

/// Medians of the times that the caller waits for the longest pages, one after another.
pub(super) struct Reading {
    list: &'static str,
    entries: usize,
    pages: usize,
    /// Bodies of all pages.
    bytes: usize,
    page_milliseconds: f64,
    milliseconds: f64,
}

pub(super) async fn all(caller: &Caller, execution: ExecutionId) -> anyhow::Result<Vec<Reading>> {
    let mut readings = Vec::new();
    for list in &LISTS {
        readings.push(read(caller, execution, list).await?);
    }
    Ok(readings)
}

async fn read(caller: &Caller, execution: ExecutionId, list: &List) -> anyhow::Result<Reading> {
    let mut reading = page_through(caller, execution, list).await?;
    let (mut whole, mut page) = (Vec::new(), Vec::new());
    for _ in 0..READINGS {
        reading = page_through(caller, execution, list).await?;
        whole.push(reading.milliseconds);
        page.push(reading.page_milliseconds);
    }
    Ok(Reading { milliseconds: median(whole), page_milliseconds: median(page), ..reading })
}

/// Reads every page once.
async fn page_through(caller: &Caller, execution: ExecutionId, list: &List) -> anyhow::Result<Reading> {
    let path = format!("/v1/executions/{execution}/{}?limit={}{}", list.entries, list.limit, list.query);
    let (mut entries, mut bytes, mut after, mut pages) = (0, 0, String::new(), Vec::new());
    loop {
        let asked = Instant::now();
        let (status, body) = caller.send(Method::GET, &format!("{path}{after}"), Bytes::new()).await?;
        pages.push(asked.elapsed().as_secs_f64() * 1_000.0);
        ensure!(status.is_success(), "the API answered {status} for {path}{after}");
        bytes += body.len();
        let body: Value = serde_json::from_slice(&body)?;
        let page = body[list.entries].as_array().context("a page has no list")?;
        entries += page.len();
        let Some(last) = page.last().filter(|_| page.len() == list.limit) else { break };
        after = format!("&after={}", last["seq"]);
    }
    let milliseconds = pages.iter().sum();
    Ok(Reading { list: list.name, entries, pages: pages.len(), bytes, page_milliseconds: median(pages), milliseconds })
}

impl Reading {
    pub(super) fn json(&self) -> Value {
        json!({
            "list": self.list, "entries": self.entries, "pages": self.pages, "bytes": self.bytes,
            "page_milliseconds": self.page_milliseconds, "milliseconds": self.milliseconds,
        })
    }

    pub(super) fn line(&self) -> String {
        format!(
            "{:<17} {:>5} entries of {:>7} bytes in {:>2} pages: {:>6.1} ms, {:.1} ms a page",
            self.list, self.entries, self.bytes, self.pages, self.milliseconds, self.page_milliseconds
        )
    }
}
