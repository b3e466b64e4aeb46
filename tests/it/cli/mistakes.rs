//! Mistakes of a first day: each message names the thing, and what to write or run next. The list is that of
//! docs/reference/first-mistakes.md.

use std::{collections::BTreeMap, process::Command};

use super::{CommandResult, PROGRAM, Shell};
use crate::support::fleet::Fleet;

/// A mistake.
struct Mistake {
    what: &'static str,
    /// Files in the working directory: name and text.
    files: &'static [(&'static str, &'static str)],
    /// Variables that differ from a working environment; an empty one is not set.
    environment: &'static [(&'static str, &'static str)],
    /// Arguments, as in a shell.
    command: &'static str,
    code: i32,
    /// Parts of what it says.
    says: &'static [&'static str],
}

const fn mistake(what: &'static str, command: &'static str, code: i32, says: &'static [&'static str]) -> Mistake {
    Mistake { what, files: &[], environment: &[], command, code, says }
}

const fn in_file(
    what: &'static str,
    files: &'static [(&'static str, &'static str)],
    says: &'static [&'static str],
) -> Mistake {
    Mistake { what, files, environment: &[], command: "apply -f a.yaml", code: 2, says }
}

const fn with(
    what: &'static str,
    environment: &'static [(&'static str, &'static str)],
    command: &'static str,
    code: i32,
    says: &'static [&'static str],
) -> Mistake {
    Mistake { what, files: &[], environment, command, code, says }
}

const MISTAKES: &[Mistake] = &[
    mistake("a command is misspelt", "submt clerk", 2, &["submit"]),
    mistake("a flag is misspelt", "list --statsu FAILED", 2, &["--status"]),
    mistake("the input has no flag", "submit clerk '{\"a\": 1}'", 2, &["the input goes after --input"]),
    mistake("the input is missing", "submit clerk", 2, &["--input", "for example: longhaul submit"]),
    mistake("the input is not JSON", "submit clerk --input {bad", 2, &["--input", "JSON"]),
    mistake("the input's file is not there", "submit clerk --input @lost.json", 1, &["lost.json"]),
    mistake("a number is a word", "submit clerk --input {} --priority high", 2, &["--priority", "not a whole number"]),
    mistake(
        "a time to come is misspelt",
        "submit clerk --input {} --run-at tomorow",
        2,
        &["`tomorow`", "\"tomorrow 9:00\""],
    ),
    mistake("a past time is a word", "usage --since soon", 2, &["`soon`", "1d"]),
    mistake("nothing is named to cancel", "cancel", 2, &["`longhaul list` shows the ids", "--status IN_PROGRESS"]),
    mistake("nothing is named to retry", "retry", 2, &["`longhaul list` shows the ids", "--status FAILED"]),
    mistake("a status is misspelt", "list --status faild", 6, &["`faild`", "did you mean `FAILED`?"]),
    mistake("a reason is misspelt", "list --wait-reason aproval", 6, &["did you mean `approval`?"]),
    mistake("an id is no id", "get nonsense", 5, &["execution not found"]),
    mistake("a definition is misspelt", "submit cleark --input {}", 6, &["`cleark`"]),
    mistake("an agent is misspelt", "submit --agent cleark --input {}", 6, &["`cleark`"]),
    mistake("a shell is unknown", "completions bsh", 2, &["bash"]),
    with("no key is set", &[("LONGHAUL_API_KEY", "")], "list", 6, &["LONGHAUL_API_KEY", "longhaul keys create"]),
    with(
        "the key is wrong",
        &[("LONGHAUL_API_KEY", "lh_wrong_key")],
        "list",
        6,
        &["unknown, revoked or expired", "longhaul keys create"],
    ),
    with("the server is not there", &[("LONGHAUL_URL", "http://127.0.0.1:9")], "list", 1, &["127.0.0.1:9"]),
    with("the URL has no scheme", &[("LONGHAUL_URL", "localhost:8080")], "list", 2, &["client.url", "http"]),
    with(
        "keys are made without a database",
        &[("DATABASE_URL", "")],
        "keys create --name me --org acme",
        2,
        &["DATABASE_URL"],
    ),
    with("a worker has no database", &[("DATABASE_URL", "")], "worker", 1, &["DATABASE_URL"]),
    with("a worker has no Redis", &[("REDIS_URL", "")], "worker", 1, &["REDIS_URL"]),
    with(
        "a worker has no model",
        &[("LONGHAUL_LLM_URL", "")],
        "worker",
        1,
        &["no model is configured", "OPENAI_API_KEY", "`scripted`"],
    ),
    with(
        "the default provider is not configured",
        &[("LONGHAUL__LLM__DEFAULT_PROVIDER", "opnai")],
        "worker",
        2,
        &["llm.default_provider", "opnai", "custom"],
    ),
    with(
        "a setting is misspelt",
        &[("LONGHAUL__WORKER__CONCURENCY", "5")],
        "worker",
        2,
        &["worker.concurency", "did you mean worker.concurrency?"],
    ),
    with(
        "a setting has another type",
        &[("LONGHAUL__WORKER__CONCURRENCY", "many")],
        "worker",
        2,
        &["worker.concurrency", "many"],
    ),
    with("the API has no pepper", &[("LONGHAUL_API_KEY_PEPPER", "")], "api", 2, &["LONGHAUL_API_KEY_PEPPER"]),
    mistake("the configuration file is not there", "--config lost.toml config check", 2, &["lost.toml"]),
    Mistake {
        what: "a setting of the file is misspelt",
        files: &[("longhaul.toml", "[worker]\nconcurency = 5\n")],
        environment: &[],
        command: "--config longhaul.toml config check",
        code: 2,
        says: &["longhaul.toml", "did you mean worker.concurrency?"],
    },
    with(
        "the model's server is not there",
        &[("LONGHAUL_LLM_URL", "http://127.0.0.1:9/v1")],
        "doctor",
        1,
        &["FAILED", "127.0.0.1:9", "check the address"],
    ),
    mistake("a file is not there", "apply -f agents", 2, &["agents: there is no such file or folder here"]),
    in_file(
        "`prompts` is misspelt",
        &[("a.yaml", "key: a\nname: A\npromts: {conversation: hi}\n")],
        &["a.yaml", "did you mean `prompts` by `promts`?"],
    ),
    in_file(
        "a field is misspelt",
        &[("a.yaml", "key: a\nname: A\ndescripton: d\nprompts: {conversation: hi}\n")],
        &["a.yaml:3", "did you mean `description`?"],
    ),
    in_file(
        "a number is a word in a file",
        &[("a.yaml", "key: a\nname: A\nprompts: {conversation: hi}\nlimits: {max_turns: many}\n")],
        &["a.yaml:4: /limits/max_turns", "\"many\""],
    ),
    in_file(
        "a command is a text",
        &[("a.yaml", "key: a\nname: A\nprompts: {conversation: hi}\nmcp_servers: {s: {command: python x}}\n")],
        &["a.yaml:4: /mcp_servers/s/command", "array"],
    ),
    in_file(
        "a file has two records",
        &[("a.yaml", "key: a\nname: A\nprompts: {conversation: hi}\n---\nkey: b\n")],
        &["a.yaml", "more than one document"],
    ),
    in_file("a line is indented too far", &[("a.yaml", "key: a\n name: A\n")], &["a.yaml:2: "]),
    in_file(
        "a template is not closed",
        &[("a.yaml", "key: d\nname: D\nagent_key: a\nprompt: '{{ input.x '\n")],
        &["a.yaml:4: /prompt"],
    ),
    in_file(
        "a key has a space",
        &[("a.yaml", "key: my agent\nname: A\nprompts: {conversation: hi}\n")],
        &["a.yaml:1: /key"],
    ),
    in_file(
        "a definition names no agent",
        &[("a.yaml", "key: d\nname: D\nagent_key: nobody\n")],
        &["a.yaml:3: /agent_key", "there is no agent `nobody`"],
    ),
];

/// The arguments of a command as a shell splits them; `{}` stays.
fn split(command: &str) -> Vec<String> {
    let quoted = command.split('\'').enumerate();
    quoted
        .flat_map(|(at, part)| match at % 2 {
            1 => vec![part.to_owned()],
            _ => part.split_whitespace().map(str::to_owned).collect(),
        })
        .collect()
}

fn run(mistake: &Mistake, environment: &BTreeMap<String, String>) -> CommandResult {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in mistake.files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let mut environment = environment.clone();
    for (name, value) in mistake.environment {
        environment.insert((*name).to_owned(), (*value).to_owned());
    }
    environment.retain(|_, value| !value.is_empty());
    let mut command = Command::new(PROGRAM);
    command.args(split(mistake.command)).env_clear().envs(environment).current_dir(dir.path());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandResult { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_of_a_first_day_lead_somewhere() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    let mut environment = fleet.environment().clone();
    environment.insert("LONGHAUL_API_KEY_PEPPER".into(), "a pepper of the tests that is long enough".into());
    environment.insert("LONGHAUL_URL".into(), shell.url.clone());
    environment.insert("LONGHAUL_API_KEY".into(), shell.key.clone());
    let mut wrong = Vec::new();
    for mistake in MISTAKES {
        let ran = tokio::task::block_in_place(|| run(mistake, &environment));
        let said = format!("{}{}", ran.out, ran.err);
        let missing: Vec<_> = mistake.says.iter().filter(|part| !said.contains(**part)).collect();
        if ran.code != mistake.code || !missing.is_empty() {
            wrong.push(format!(
                "{}: longhaul {}: {} without {missing:?}:\n{said}",
                mistake.what, mistake.command, ran.code
            ));
        }
        for jargon in
            ["panicked", "os error", "invalid digit", "expected sequence", "from_str_multiple", "input contains"]
        {
            assert!(!said.contains(jargon), "{}: {said}", mistake.what);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(MISTAKES.len() >= 40);
}

/// A missing URL or key comes from `.longhaul/env`; its key goes to its own server alone.
#[tokio::test(flavor = "multi_thread")]
async fn half_of_an_environment_is_completed() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(".longhaul")).unwrap();
    let written = format!("export LONGHAUL_URL='{}'\nexport LONGHAUL_API_KEY='{}'\n", shell.url, shell.key);
    std::fs::write(dir.path().join(".longhaul/env"), written).unwrap();
    std::fs::write(dir.path().join("other.toml"), "[client]\nurl = 'http://127.0.0.1:9'\n").unwrap();
    let whoami = |environment: &[(&str, &str)], arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).arg("whoami").env_clear().envs(environment.iter().copied()).current_dir(dir.path());
        let output = tokio::task::block_in_place(|| command.output()).unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(whoami(&[], &[]).0, 0);
    assert_eq!(whoami(&[("LONGHAUL_URL", &shell.url)], &[]).0, 0);
    assert_eq!(whoami(&[("LONGHAUL_API_KEY", &shell.key)], &[]).0, 0);
    let (code, said) = whoami(&[("LONGHAUL_URL", "http://127.0.0.1:9")], &[]);
    assert!(code == 6 && said.contains("no API key") && said.contains("its own server alone"), "{code} {said}");
    let (_, said) = whoami(&[("LONGHAUL_API_KEY", &shell.key)], &["--config", "other.toml"]);
    assert!(said.contains("127.0.0.1:9"), "the file names the server: {said}");
}

#[test]
fn list_of_mistakes_is_in_the_documentation() {
    let cell = |text: &str| text.replace('|', "\\|");
    let rows: String = MISTAKES
        .iter()
        .map(|one| {
            let set = one.environment.iter().map(|(name, value)| format!("{name}={value} ")).collect::<String>();
            let says =
                one.says.iter().map(|part| format!("`{}`", part.replace('`', "'"))).collect::<Vec<_>>().join(" … ");
            format!("| {} | `{set}longhaul {}` | {says} |\n", cell(one.what), cell(one.command))
        })
        .collect();
    let page = include_str!("../../../docs/reference/first-mistakes.md");
    let table = page.split("|---|---|---|\n").nth(1).unwrap_or_default();
    assert_eq!(table, rows, "the table of docs/reference/first-mistakes.md is:\n{rows}");
}
