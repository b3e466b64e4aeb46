//! Reads the answers of search services, and writes results for the model.

use longhaul_domain::cut;
use serde::{Deserialize, Serialize};

use crate::fetch_url::html;

/// Bytes of one title, URL and text. A longer URL is left out with its result, since a cut one leads elsewhere.
const MAX_TITLE_BYTES: usize = 300;
const MAX_URL_BYTES: usize = 2_048;
const MAX_TEXT_BYTES: usize = 1_000;

/// One result as the model sees it.
#[derive(Debug, Serialize)]
struct Found {
    title: String,
    url: String,
    text: String,
    /// Date as the service writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<String>,
}

#[derive(Deserialize)]
struct BraveAnswer {
    #[serde(default)]
    web: Option<BraveWeb>,
}

#[derive(Deserialize)]
struct BraveWeb {
    #[serde(default)]
    results: Vec<BraveResult>,
}

#[derive(Deserialize)]
struct BraveResult {
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    page_age: Option<String>,
}

#[derive(Deserialize)]
struct SearxngAnswer {
    #[serde(default)]
    results: Vec<SearxngResult>,
}

#[derive(Deserialize)]
struct SearxngResult {
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    content: Option<String>,
    #[serde(default, rename = "publishedDate")]
    published: Option<String>,
}

/// Results of the Brave Search API. Its texts are HTML.
pub(super) fn of_brave(body: &[u8], count: usize) -> Result<String, String> {
    let answer: BraveAnswer = read(body)?;
    let results = answer.web.map(|web| web.results).unwrap_or_default().into_iter();
    let plain = |text: Option<String>| text.map(|text| html::to_text(&text)).unwrap_or_default();
    write(count, results.filter_map(|it| Some((it.url?, plain(it.title), plain(it.description), it.page_age))))
}

/// Results of a SearXNG server. Its texts are plain.
pub(super) fn of_searxng(body: &[u8], count: usize) -> Result<String, String> {
    let answer: SearxngAnswer = read(body)?;
    let results = answer.results.into_iter();
    write(
        count,
        results.filter_map(|it| {
            Some((it.url?, it.title.unwrap_or_default(), it.content.unwrap_or_default(), it.published))
        }),
    )
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|_| "the search service answered something else than its results".into())
}

fn write(
    count: usize,
    results: impl Iterator<Item = (String, String, String, Option<String>)>,
) -> Result<String, String> {
    let is_page = |url: &str| {
        url.len() <= MAX_URL_BYTES && url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
    };
    let found: Vec<Found> = results
        .filter(|(url, ..)| is_page(url))
        .take(count)
        .map(|(url, title, text, published)| Found {
            title: cut(&title, MAX_TITLE_BYTES).into_owned(),
            url,
            text: cut(&text, MAX_TEXT_BYTES).into_owned(),
            published: published.map(|date| cut(&date, MAX_TITLE_BYTES).into_owned()),
        })
        .collect();
    serde_json::to_string(&serde_json::json!({ "results": found })).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn html_of_brave_becomes_text() {
        let body = json!({"web": {"results": [
            {"url": "https://a.example/", "title": "A &amp; <strong>B</strong>", "description": "it&#x27;s"},
        ]}});
        let found: Value = serde_json::from_str(&of_brave(body.to_string().as_bytes(), 5).unwrap()).unwrap();
        let expected = json!({"title": "A & B", "url": "https://a.example/", "text": "it's"});
        assert_eq!(found, json!({ "results": [expected] }));
        assert_eq!(of_brave(b"{}", 5).unwrap(), r#"{"results":[]}"#);
    }

    #[test]
    fn odd_links_and_surplus_results_are_dropped() {
        let urls = ["javascript:alert(1)", "not a url", "https://a.example/", "https://b.example/"];
        let long = format!("https://c.example/{}", "x".repeat(MAX_URL_BYTES));
        let results: Vec<Value> = [long.as_str()]
            .into_iter()
            .chain(urls)
            .map(|url| json!({ "url": url, "content": "x".repeat(9_000) }))
            .collect();
        let found = of_searxng(json!({ "results": results }).to_string().as_bytes(), 1).unwrap();
        let found: Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["results"].as_array().unwrap().len(), 1);
        assert_eq!(found["results"][0]["url"], "https://a.example/");
        assert!(found["results"][0]["text"].as_str().unwrap().len() <= MAX_TEXT_BYTES);
    }

    #[test]
    fn result_without_url_is_skipped() {
        let results = json!([{ "title": "none" }, { "url": null }, { "url": "https://a.example/", "title": "A" }]);
        let brave = json!({"web": {"results": results}}).to_string();
        let searxng = json!({ "results": results }).to_string();
        for found in [of_brave(brave.as_bytes(), 5), of_searxng(searxng.as_bytes(), 5)] {
            assert_eq!(found.unwrap(), r#"{"results":[{"text":"","title":"A","url":"https://a.example/"}]}"#);
        }
    }

    #[test]
    fn foreign_answer_is_an_error() {
        assert!(of_searxng(b"<html>", 5).is_err());
        assert!(of_brave(br#"{"web": 3}"#, 5).is_err());
    }
}
