//! The commands of the guides, run as written.

use std::path::Path;

use longhaul_embedded::PrivatePostgres;
use reqwest::Url;

pub(super) const OPERATIONS: &str = include_str!("../../../docs/guide/operations.md");
pub(super) const SQL: &str = include_str!("../../../docs/reference/sql.md");

/// The first block of a section in this language.
pub(super) fn block(guide: &str, section: &str, language: &str) -> String {
    let start = guide.find(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let text = &guide[start + 1..];
    let text = &text[..text[2..].find("\n## ").map_or(text.len(), |end| end + 2)];
    let fence = format!("```{language}\n");
    let begin = text.find(&fence).unwrap_or_else(|| panic!("no {language} in {section}")) + fence.len();
    let end = text[begin..].find("```").unwrap() + begin;
    text[begin..end].lines().map(str::trim_start).collect::<Vec<_>>().join("\n")
}

/// Runs a script in `dir` against this server, with its programs before all others.
pub(super) async fn run(script: String, postgres: &PrivatePostgres, dir: &Path) {
    let url = Url::parse(postgres.url()).unwrap();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", postgres.programs().display());
    let ended = tokio::process::Command::new("/bin/sh")
        .args(["-ec", &script])
        .current_dir(dir)
        .env_clear()
        .envs([("PATH", path.as_str()), ("LC_ALL", "C"), ("DATABASE_URL", url.as_str())])
        .envs([("PGHOST", url.host_str().unwrap()), ("PGPORT", &url.port().unwrap().to_string())])
        .envs([("PGUSER", url.username()), ("PGPASSWORD", url.password().unwrap())])
        .output()
        .await
        .unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    assert!(ended.status.success(), "{script}\n{}", String::from_utf8_lossy(&said));
}
