//! `longhaul apply` finds mistakes before anything runs.

use serde_json::Value;

use super::Shell;
use crate::{
    support::{fleet::Fleet, wait::eventually},
    worker::kit::TestTool,
};
use longhaul_sdk::ToolEffect;

/// Files with a mistake each, and its message: line and texts.
const MISTAKES: &[(&str, &str, usize, &[&str])] = &[
    ("syntax.yaml", "key: syntax\nname: [open\nprompts: {}\n", 3, &[]),
    ("kind.yaml", "key: kind\nname: K\n", 0, &["neither an agent"]),
    (
        "field.yaml",
        "key: field\nname: F\nprompts:\n  conversation: hi\nmodle: {}\n",
        5,
        &["/modle", "did you mean `model`?"],
    ),
    ("value.yaml", "key: value\nname: V\nagent_key: clerk\nmax_retries: many\n", 4, &["/max_retries", "many"]),
    ("word.yaml", "key: word\nname: W\nagent_key: clerk\nrunner: rust_lang\n", 4, &["/runner", "declarative"]),
    ("required.yaml", "key: required\nagent_key: clerk\n", 1, &["/name", "is required"]),
    (
        "schema.yaml",
        "key: schema\nname: S\nagent_key: clerk\ninput_schema:\n  type: objekt\n",
        4,
        &["/input_schema", "objekt"],
    ),
    (
        "template.yaml",
        "key: template\nname: T\nagent_key: clerk\nprompt: |\n  Hello,\n  {{ input.sku \n",
        6,
        &["/prompt"],
    ),
    (
        "member.yaml",
        "key: member\nname: M\nagent_key: clerk\nprompt: >-\n  the item\n  {{ input.skuu }}\n\
         input_schema: {type: object, additionalProperties: false, properties: {sku: {type: string}}}\n",
        6,
        &["`input.skuu`", "did you mean `sku`?"],
    ),
    ("filter.yaml", "key: filter\nname: F\nprompts:\n  conversation: '{{ input.x | uper }}'\n", 4, &["`uper`"]),
    (
        "extra.yaml",
        "key: extra\nname: E\nprompts: {conversation: hi}\nmodel:\n  extra:\n    seed: 1\n    messages: []\n",
        7,
        &["/model/extra/messages"],
    ),
    (
        "script.yaml",
        "key: script\nname: S\nprompts: {conversation: hi}\nmodel:\n  script: '{{ nope'\n",
        5,
        &["/model/script"],
    ),
    (
        "server.yaml",
        "key: server\nname: S\nprompts: {conversation: hi}\nmcp_servers:\n  wiki: {}\n",
        5,
        &["/mcp_servers/wiki", "`command`"],
    ),
    (
        "program.yaml",
        "key: program\nname: P\nprompts: {conversation: hi}\nmcp_servers:\n  w:\n    command: [no-such-program]\n",
        6,
        &["no-such-program"],
    ),
    (
        "tool.yaml",
        "key: tool\nname: T\nprompts: {conversation: hi}\ntools:\n  - fetch_url\n  - serch_web\n",
        6,
        &["/tools/1", "did you mean `search_web`?"],
    ),
    (
        "validator.yaml",
        "key: validator\nname: V\nagent_key: clerk\nvalidators: [is_vald_json]\n",
        4,
        &["/validators/0", "`is_valid_json`?"],
    ),
    (
        "provider.yaml",
        "key: provider\nname: P\nprompts: {conversation: hi}\nmodel: {provider: custm}\n",
        4,
        &["/model/provider", "did you mean `custom`?"],
    ),
    (
        "fallback.yaml",
        "key: fallback\nname: F\nprompts: {conversation: hi}\nmodel:\n  fallback:\n    - provider: nowhere\n",
        6,
        &["/model/fallback/0/provider"],
    ),
    ("agent.yaml", "key: unowned\nname: A\nagent_key: clrek\n", 3, &["/agent_key", "did you mean `clerk`?"]),
    (
        "skill.yaml",
        "key: skill\nname: S\nprompts: {conversation: hi}\nskills: [refunds]\n",
        4,
        &["/skills/0", "no skill `refunds`"],
    ),
    ("reserved.yaml", "key: agent\nname: R\nagent_key: clerk\n", 1, &["`agent` is built in"]),
    ("zdouble.yaml", "key: clerk\nname: D\nprompts: {conversation: hi}\n", 1, &["is also in"]),
    (
        "limit.yaml",
        "key: limit\nname: L\nagent_key: clerk\nconcurrency:\n  - {key: customer, limit: 1}\n",
        5,
        &["/concurrency/0/key", "metadata"],
    ),
    (
        "rule.yaml",
        "key: rule\nname: R\nprompts: {conversation: hi}\napprovals:\n  rules:\n    - {tool: read, access: ask}\n    - \
         {tool: pay, when: arguments.amount > 100, access: ask}\n",
        7,
        &["/approvals/rules/1/when", "runs without a person", "end with `{tool: \"pay\", access: ask}`"],
    ),
    ("dots.yaml", "key: a..b\nname: D\nprompts: {conversation: hi}\n", 1, &["/key"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn apply_names_each_mistake_with_file_and_line() {
    let mut fleet = Fleet::start().await;
    let shell = Shell::open(&mut fleet).await;
    let tool = TestTool::new("search_web", ToolEffect::ReadOnly, |_, _, _| Ok("found".into()));
    let _worker = fleet.worker_with(|builder| builder.tool(tool).unwrap());
    eventually("a worker lives", std::time::Duration::from_secs(30), async || {
        let offers = fleet.store.offers().await.unwrap();
        if offers.is_empty() { Err("no offers") } else { Ok(()) }
    })
    .await;
    let write = |file: &str, text: &str| std::fs::write(shell.dir.path().join("records").join(file), text).unwrap();
    std::fs::create_dir(shell.dir.path().join("records")).unwrap();
    let closed = "approvals:\n  rules:\n    - {tool: p, when: arguments.a <= 1, access: auto}\n    - {tool: 'p*', \
        access: ask}\n";
    write("clerk.yaml", &format!("key: clerk\nname: C\nprompts: {{conversation: hi}}\ntools: [search_web]\n{closed}"));
    write("good.yaml", "key: good\nname: G\nagent_key: clerk\nprompt: '{{ input.a | default(1) }}'\n");
    for (file, text, _, _) in MISTAKES {
        write(file, text);
    }
    let ran = shell.run(&["apply", "-f", "records", "--strict", "--json"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
    let told: Value = serde_json::from_str(&ran.err).unwrap();
    let problems = told["problems"].as_array().unwrap();
    for (file, _, line, texts) in MISTAKES {
        let of_file: Vec<&Value> =
            problems.iter().filter(|one| one["file"].as_str().unwrap().ends_with(&format!("/{file}"))).collect();
        let [problem] = of_file[..] else { panic!("{file}: {of_file:?}") };
        assert_eq!(problem["line"].as_u64().unwrap_or_default(), u64::try_from(*line).unwrap(), "{problem}");
        let what = problem["what"].as_str().unwrap();
        assert!(texts.iter().all(|text| what.contains(text)), "{file}: {what}");
    }
    assert_eq!(problems.len(), MISTAKES.len(), "{problems:#?}");
    assert_eq!(shell.json(&["agents"]).await["items"], Value::Array(Vec::new()), "nothing is applied");

    // Without --strict, what only the fleet knows is a warning.
    for (file, ..) in MISTAKES.iter().filter(|(file, ..)| !["tool.yaml", "provider.yaml", "rule.yaml"].contains(file)) {
        std::fs::remove_file(shell.dir.path().join("records").join(file)).unwrap();
    }
    shell
        .refused(&["apply", "-f", "records", "--strict"], 2, &["tool.yaml:6: ", "provider.yaml:4: ", "rule.yaml:7: "])
        .await;
    let checked = shell.run(&["apply", "-f", "records", "--check"]).await;
    assert_eq!((checked.code, checked.out.as_str()), (0, "checked 4 agents, 1 definitions; nothing was applied\n"));
    assert!(checked.err.contains("warning: records/tool.yaml:6: "), "{}", checked.err);
    assert_eq!(shell.json(&["agents"]).await["items"], Value::Array(Vec::new()));
    assert!(shell.done(&["apply", "-f", "records"]).await.contains("agent tool: version 1 (new)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_checked_without_a_server() {
    let mut fleet = Fleet::start().await;
    let mut shell = Shell::open(&mut fleet).await;
    shell.url = "http://127.0.0.1:9".into();
    std::fs::write(shell.dir.path().join("a.yaml"), "key: a\nname: A\nprompts: {conversation: hi}\n").unwrap();
    let checked = shell.run(&["apply", "-f", "a.yaml", "--check"]).await;
    assert_eq!(checked.code, 0, "{checked:?}");
    assert!(checked.err.contains("only the files were checked"), "{}", checked.err);
    shell.refused(&["apply", "-f", "a.yaml", "--check", "--strict"], 1, &["does not answer"]).await;
    std::fs::write(shell.dir.path().join("a.yaml"), "key: a\nname: A\nprompts: {conversatoin: hi}\n").unwrap();
    shell.refused(&["apply", "-f", "a.yaml"], 2, &["a.yaml:3: /prompts/conversatoin"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_records_count_beside_the_files() {
    let mut fleet = Fleet::start().await;
    let mut shell = Shell::open(&mut fleet).await;
    let write = |file: &str, text: &str| {
        let path = shell.dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("skills/refunds/SKILL.md", "---\nname: refunds\ndescription: Rules.\n---\n\nWithin 30 days.\n");
    let desk = |skill: &str| format!("key: desk\nname: Desk\nprompts: {{conversation: hi}}\nskills: [{skill}]\n");
    write("desk.yaml", &desk("refunds"));
    let state = |agent: &str| format!("key: state\nname: State\nagent_key: {agent}\n");
    write("state.yaml", &state("desk"));
    shell.done(&["apply", "-f", "skills"]).await;
    shell.done(&["apply", "-f", "desk.yaml"]).await;
    shell.done(&["apply", "-f", "state.yaml"]).await;
    write("desk.yaml", &desk("refnds"));
    shell.refused(&["apply", "-f", "desk.yaml"], 2, &["desk.yaml:4: /skills/0: ", "did you mean `refunds`?"]).await;
    write("state.yaml", &state("dsek"));
    shell.refused(&["apply", "-f", "state.yaml"], 2, &["state.yaml:3: /agent_key: ", "did you mean `desk`?"]).await;

    // A key that may write and not read: the API decides.
    write("state.yaml", &state("desk"));
    write("other.yaml", &state("dsek").replace("key: state", "key: other"));
    for name in ["DATABASE_URL", "LONGHAUL_API_KEY_PEPPER"] {
        let value = fleet.environment()[name].clone();
        shell.set(name, &value);
    }
    let create = ["keys", "create", "--name", "ci", "--scopes", "definitions:write", "--org", "acme"];
    shell.key = shell.json(&create).await["key"].as_str().unwrap().to_owned();
    shell.refused(&["apply", "-f", "other.yaml"], 6, &["other.yaml", "there is no agent `dsek`"]).await;
    shell.refused(&["apply", "-f", "other.yaml", "--check", "--strict"], 1, &["names cannot be compared"]).await;
}
