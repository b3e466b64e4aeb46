//! Tables and diagrams of docs/ that must match the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use longhaul_contract::ExecCode;
use longhaul_domain::{ExecutionStatus, RetryCounters, RetryPolicy, WaitReason, status::Transition};
use longhaul_sdk::{
    AgentSpec,
    failure::{FailureClass, FailureCode},
};
use longhaul_telemetry::metrics::METRICS;

/// The default policy's delays for a class, in seconds.
fn delays(class: FailureClass) -> Vec<String> {
    let policy = RetryPolicy::default();
    let had = |n| match class {
        FailureClass::Transient => RetryCounters { transient: n, ..RetryCounters::default() },
        FailureClass::ToolError => RetryCounters { tool_error: n, ..RetryCounters::default() },
        FailureClass::LlmError => RetryCounters { llm_error: n, ..RetryCounters::default() },
        FailureClass::ContextLimit | FailureClass::Permanent | FailureClass::HumanRejected => RetryCounters::default(),
    };
    (0..10).map_while(|n| policy.delay(class, had(n), None, 0.0)).map(|delay| delay.as_secs().to_string()).collect()
}

#[test]
fn failure_codes_match_the_reference_table() {
    let guide = include_str!("../../docs/reference/failures.md");
    let table = guide.split("| code |").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `")).map(|line| {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        assert_eq!(cells.len(), 7, "{line}");
        [cells[1], cells[2], cells[4]].map(str::to_owned)
    });
    let expected = FailureCode::BUILT_IN.iter().map(|code| {
        let delays = delays(code.class());
        let retry =
            if delays.is_empty() { "none".into() } else { format!("{}: after {} s", delays.len(), delays.join(", ")) };
        [code.to_string(), code.class().to_string(), retry]
    });
    assert_eq!(rows.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn failure_classes_match_the_reference_table() {
    let guide = include_str!("../../docs/reference/failures.md");
    let table = guide.split("| code |").next().unwrap();
    let rows: Vec<String> = table.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
    let expected = FailureClass::ALL.iter().map(|&class| {
        let delays = delays(class);
        match class {
            FailureClass::ContextLimit => {
                assert_eq!(RetryPolicy::default().max_compressions, None);
                format!("| `{class}` | compressions, until nothing is left | none |")
            }
            _ if delays.is_empty() => format!("| `{class}` | 0 | – |"),
            _ => format!("| `{class}` | {} | {} s |", delays.len(), delays.join(", ")),
        }
    });
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

/// Checks every failure made with class and code side by side, or as permanent.
#[test]
fn every_failure_has_its_codes_class() {
    let made = regex::Regex::new(
        r"Failure::new\(\s*FailureClass::(\w+),\s*FailureCode::([A-Z_]+)|Failure::permanent\(\s*FailureCode::([A-Z_]+)",
    )
    .unwrap();
    let mut seen = 0;
    for text in sources(&["crates"]) {
        // Failures made by tests and examples may be arbitrary.
        let text = text.split("#[cfg(test)]").next().unwrap();
        let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for found in made.captures_iter(&code) {
            let class = found.get(1).map_or("Permanent", |class| class.as_str());
            let name = found.get(2).or(found.get(3)).unwrap().as_str();
            let code = FailureCode::BUILT_IN.iter().find(|code| code.as_str().to_uppercase() == name).unwrap();
            assert_eq!(class, format!("{:?}", code.class()), "{code}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} found");
}

#[test]
fn contract_codes_match_the_reference_table() {
    let guide = include_str!("../../docs/reference/failures.md");
    let table = guide.split("| code |").nth(2).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<String> = rows
        .map(|line| {
            line.split('|').skip(1).take(4).map(|cell| cell.trim().trim_matches('`')).collect::<Vec<_>>().join(" ")
        })
        .collect();
    let codes = ExecCode::ALL
        .iter()
        .map(|code| format!("{} {} {} {}", code.as_str(), code.class(), code.http_status(), code.state()));
    assert_eq!(rows, codes.collect::<Vec<_>>());
}

#[test]
fn metrics_match_the_reference_table() {
    let guide = include_str!("../../docs/reference/metrics.md");
    let table = guide.split("| metric |").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let metrics = METRICS.iter().map(|metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "none".to_owned() } else { labels.join(", ") };
        format!("| `{}` | {} | {labels} | {} |", metric.name, metric.kind.as_str(), metric.help)
    });
    assert_eq!(rows.map(str::to_owned).collect::<Vec<_>>(), metrics.collect::<Vec<_>>());
}

#[test]
fn the_diagram_has_the_edges_of_the_state_machine() {
    let mut expected = BTreeSet::new();
    for &from in ExecutionStatus::ALL {
        for &transition in Transition::ALL {
            if let Ok(to) = from.next(transition) {
                expected.insert(format!("{from} --> {to}: {transition:?}"));
            }
        }
    }
    let guide = include_str!("../../docs/reference/state-machine.md");
    let edges = guide.lines().map(str::trim).filter(|line| line.contains(" --> ") && !line.contains("[*]"));
    assert_eq!(edges.map(str::to_owned).collect::<BTreeSet<_>>(), expected);
}

#[test]
fn wait_reasons_match_the_reference_table() {
    let guide = include_str!("../../docs/reference/state-machine.md");
    let table = guide.split("| `wait_reason` |").nth(1).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let reasons = WaitReason::ALL.iter().map(|reason| reason.as_str());
    assert_eq!(rows.collect::<BTreeSet<_>>(), reasons.collect::<BTreeSet<_>>());
}

#[test]
fn cited_core_rules_are_documented() {
    let guide = include_str!("../../docs/reference/core-rules.md");
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse::<u32>().ok());
    let rules: BTreeSet<u32> = rows.collect();
    assert_eq!(rules, (1..=rules.last().copied().unwrap_or_default()).collect(), "a rule is missing");
    let named = regex::Regex::new(r"core-rules ((?:\d+(?:, | and )?)+)").unwrap();
    let number = regex::Regex::new(r"\d+").unwrap();
    let mut places = 0;
    for text in sources(&["crates", "migrations", "model", "tests"]) {
        for named in named.captures_iter(&text) {
            places += 1;
            let mut numbers = number.find_iter(&named[1]).map(|number| number.as_str().parse().unwrap());
            assert!(numbers.all(|number| rules.contains(&number)), "{}", &named[0]);
        }
    }
    assert!(places > 50, "{places} places found");
}

/// Contents of every Rust and SQL file under these folders.
fn sources(folders: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "sql") {
                found.push(fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

/// Tests whose names end in a behaviour's number, by that number.
fn behaviour_tests() -> BTreeMap<u32, Vec<String>> {
    let name = regex::Regex::new(r"fn (\w+_c(\d\d))\(").unwrap();
    let mut found: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for text in sources(&["tests/it", "crates"]) {
        for test in name.captures_iter(&text) {
            found.entry(test[2].parse().unwrap()).or_default().push(test[1].to_owned());
        }
    }
    found
}

#[test]
fn every_loop_behaviour_has_one_listed_test() {
    let guide = include_str!("../../docs/guide/loop.md");
    let table = guide.split("| number |").nth(1).unwrap();
    let mut listed = BTreeMap::new();
    for line in table.lines().skip(2) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, _, test, _] = cells.as_slice() else { panic!("{line}") };
        let before = listed.insert(number.parse::<u32>().unwrap(), vec![test.trim_matches('`').to_owned()]);
        assert_eq!(before, None, "{line}");
    }
    assert_eq!(listed.keys().copied().collect::<Vec<_>>(), (1..=60).collect::<Vec<_>>());
    assert_eq!(behaviour_tests(), listed);
}

#[test]
fn settings_in_the_loop_guide_exist() {
    let guide = include_str!("../../docs/guide/loop.md");
    let shown = guide.split("```yaml").nth(1).unwrap().split("```").next().unwrap();
    let agent: AgentSpec =
        serde_saphyr::from_str(&format!("key: analyst\nname: Analyst\nprompts: {{conversation: You help.}}\n{shown}"))
            .unwrap();
    assert!(agent.references && agent.conditions && agent.model.strict_tools);
    assert_eq!(agent.latent_tools[0].name, "decide");
}

#[test]
fn yaml_reference_and_schema_are_those_of_the_code() {
    use longhaul_cli::commands::schema;
    let reference = include_str!("../../docs/reference/yaml.md");
    assert_eq!(reference, schema::markdown(), "longhaul schema --markdown >docs/reference/yaml.md");
    let stored: serde_json::Value = serde_json::from_str(include_str!("../../docs/longhaul.schema.json")).unwrap();
    assert_eq!(stored, schema::schema(), "longhaul schema >docs/longhaul.schema.json");
}

#[test]
fn schema_accepts_what_apply_reads_and_refuses_typos() {
    use longhaul_guards::json_schema::report::{compile, violations};
    let schema = compile(&longhaul_cli::commands::schema::schema()).unwrap();
    let agent = serde_json::json!({"key": "a", "name": "A", "prompts": {"conversation": "You help."}});
    let definition = serde_json::json!({"key": "d", "name": "D", "agent_key": "a"});
    let platform = serde_json::json!({"kind": "platform"});
    for file in [&agent, &definition, &platform] {
        assert_eq!(violations(&schema, file).map(|found| found.to_text()), None, "{file}");
        let mut typo = file.clone();
        typo["promts"] = "x".into();
        assert!(violations(&schema, &typo).is_some(), "{typo}");
    }
}
