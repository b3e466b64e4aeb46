//! Tests of one call from the model's text to the arguments of its tool.

use std::{borrow::Cow, sync::Arc};

use longhaul_domain::{CallError, ToolCall};
use longhaul_guards::json_schema::SchemaCache;
use longhaul_sdk::{
    ToolEffect, ToolSpec,
    spec::{AgentLimits, Detached, InstancesSpec},
};
use serde_json::{Value, json};

use super::{
    Access, CallWrite, Features, Instance, Path, PlannedCall, Resolution, Resolved, Signature, StateLimits, StateLog,
    fold::Method, instance::Instances, state::StateError,
};

fn all() -> Features {
    Features {
        references: true,
        destinations: true,
        conditions: true,
        instances: Instances::Free,
        detached: Detached::Allowed,
        strict: false,
    }
}

/// A tool with one argument of every type; only `n` is required.
fn spec() -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "text": {"type": "string"},
            "deep": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}}},
            "schema": {"type": "object"},
        },
        "required": ["n"],
        "additionalProperties": false,
    });
    ToolSpec {
        name: "t".into(),
        description: String::new(),
        parameters,
        effect: ToolEffect::ReadOnly,
        latent_output: None,
        is_strict: false,
        mended: None,
    }
}

fn latent() -> ToolSpec {
    ToolSpec {
        parameters: json!({"type": "object"}),
        latent_output: Some(json!({"type": "object", "required": ["verdict"]})),
        ..spec()
    }
}

fn read_as(spec: &ToolSpec, features: Features, arguments: &Value) -> Result<PlannedCall, CallError> {
    let signature = Arc::new(Signature::new(spec, features, &SchemaCache::default()).unwrap());
    let call = ToolCall { id: "c".into(), name: spec.name.clone(), arguments: arguments.to_string() };
    PlannedCall::read(&call, &signature)
}

fn read(arguments: Value) -> Result<PlannedCall, CallError> {
    read_as(&spec(), all(), &arguments)
}

fn refusal(arguments: Value) -> String {
    read(arguments).unwrap_err().message
}

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn log(state: &Value) -> StateLog {
    log_with(state, None)
}

fn log_with(state: &Value, instances: Option<&InstancesSpec>) -> StateLog {
    let input = json!({"city": "Rome", "orders": [{"id": 1}, {"id": 2, "city": "Oslo"}]});
    let mut log = StateLog::new(input, instances, StateLimits::from(&AgentLimits::default()));
    for (name, value) in state.as_object().unwrap() {
        write(&mut log, 1, name, &format!("†state.{name}"), Method::Set, value.clone());
    }
    log
}

fn write(log: &mut StateLog, tick: u32, call: &str, at: &str, method: Method, value: Value) {
    let write = CallWrite { tick, call_id: call.into(), instance: None, paths: vec![path(at)], method, value };
    log.write(write).unwrap();
}

fn seen(log: &StateLog, at: &str, instance: Option<&Instance>) -> Option<Value> {
    let at = path(at);
    log.read(&at, instance).map(Cow::into_owned)
}

fn awaited(is_pending: bool) -> Access {
    if is_pending { Access::Awaited } else { Access::Open }
}

fn ready(call: &PlannedCall, state: &StateLog) -> Resolved {
    match call.resolve(state, &|_| Access::Open) {
        Resolution::Ready(resolved) => resolved,
        other @ (Resolution::Waiting(_) | Resolution::Unmet { .. } | Resolution::Invalid(_)) => panic!("{other:?}"),
    }
}

fn missing(call: &PlannedCall, state: &StateLog, pending: &[&str]) -> Vec<String> {
    let is_pending = |at: &Path| pending.iter().any(|pending| path(pending).is_above_or_below(at));
    match call.resolve(state, &|at| awaited(is_pending(at))) {
        Resolution::Waiting(missing) => missing
            .iter()
            .map(|missing| {
                let paths: Vec<_> = missing.any_of.iter().map(ToString::to_string).collect();
                format!("{}: {}", missing.argument, paths.join(", "))
            })
            .collect(),
        other @ (Resolution::Ready(_) | Resolution::Unmet { .. } | Resolution::Invalid(_)) => panic!("{other:?}"),
    }
}

#[test]
fn references_are_replaced_by_typed_values_everywhere() {
    let call = read(json!({
        "n": "†state.n",
        "text": "†state.text",
        "deep": {"list": ["†state.n", 7, {"$ref": "state.n"}]},
        "schema": {"$ref": "†state.whole || †state.n"},
    }))
    .unwrap();
    let reads: Vec<_> = call.reads().iter().map(ToString::to_string).collect();
    assert_eq!(reads, ["†state.n", "†state.text", "†state.whole"]);
    let resolved = ready(&call, &log(&json!({"n": 5, "text": "†state.n is not read", "whole": {"a": null}})));
    let expected = json!({
        "n": 5,
        "text": "†state.n is not read",
        "deep": {"list": [5, 7, 5]},
        "schema": {"a": null},
    });
    assert_eq!(resolved.arguments, expected);
    let sources: Vec<_> = resolved.sources.iter().map(|source| format!("{} = {source}", source.argument)).collect();
    assert!(sources.contains(&"/deep/list/2 = †state.n".to_owned()), "{sources:?}");
    assert!(sources.contains(&"/schema = †state.whole".to_owned()), "{sources:?}");
}

#[test]
fn embedded_reference_is_refused_and_doubled_dagger_literal() {
    for embedded in ["see †state.text", "†state.text!", "died † 1990"] {
        let message = refusal(json!({"n": 1, "text": embedded}));
        assert!(
            message.starts_with("at /text: ") && message.contains("write every one of the text as ††"),
            "{message}"
        );
    }
    let plain = read(json!({"n": 1, "text": "††state.text", "schema": {"a": ["died ††1990"]}})).unwrap();
    assert!(plain.reads().is_empty());
    let arguments = ready(&plain, &log(&json!({}))).arguments;
    assert_eq!(arguments, json!({"n": 1, "text": "†state.text", "schema": {"a": ["died †1990"]}}));
    let unknown = refusal(json!({"n": "†stat.n"}));
    assert!(unknown.starts_with("at /n: unknown kind `stat`"), "{unknown}");
    // A `$ref` inside a schema that the model writes is data.
    let schema = json!({"n": 1, "schema": {"items": {"$ref": "#/$defs/x"}, "y": {"$ref": "stateful"}}});
    assert_eq!(ready(&read(schema.clone()).unwrap(), &log(&json!({}))).arguments, schema);
}

#[test]
fn daggers_and_underscores_pass_through_without_references() {
    let free = ToolSpec { parameters: json!({"type": "object"}), ..spec() };
    let arguments = json!({"a": "†state.x and more", "_outputPath": "†state.y", "$ref": "state.x"});
    let call = read_as(&free, Features::default(), &arguments).unwrap();
    assert!(call.reads().is_empty() && call.writes().is_empty());
    assert_eq!(ready(&call, &log(&json!({}))).arguments, arguments);
}

#[test]
fn meta_properties_are_removed_from_the_arguments() {
    let call = read(json!({
        "n": 1, "_outputPath": "†state.x && state.y", "_outputMethod": "push", "_when": "†state.ok", "_instance": "①",
        "_detached": null, "_output": null,
    }))
    .unwrap();
    assert_eq!(call.writes().iter().map(ToString::to_string).collect::<Vec<_>>(), ["†state.x", "†state.y"]);
    assert_eq!((call.method(), call.is_detached()), (Method::Push, false));
    assert_eq!(call.instance().unwrap().to_string(), "①");
    assert_eq!(call.reads().iter().map(ToString::to_string).collect::<Vec<_>>(), ["†state.ok"]);
    assert_eq!(ready(&call, &log(&json!({"ok": true}))).arguments, json!({"n": 1}));
    assert!(read(json!({"n": 1, "_detached": true})).unwrap().is_detached());
    let always = Features { detached: Detached::Always, ..all() };
    assert!(read_as(&spec(), always, &json!({"n": 1})).unwrap().is_detached());
}

#[test]
fn invalid_meta_property_is_refused_with_reason() {
    for (arguments, reason) in [
        (json!({"_outputPath": 5}), "`_outputPath`: expected a path such as \"†state.x\", found a number"),
        (json!({"_outputPath": "†state.x + 1"}), "`_outputPath`: unexpected `+`"),
        (json!({"_outputPath": "†input.x"}), "`_outputPath`: †input.x cannot be written"),
        (json!({"_outputPath": "†state.x || †state.approvals.pay"}), "approvals are given by people"),
        (json!({"_outputPath": {"$ref": "state.approvals.pay"}}), "approvals are given by people"),
        (json!({"_outputMethod": "append"}), "expected one of set, merge, assign, push, concat, found \"append\""),
        (json!({"_when": "†state.x ="}), "`_when`: unexpected `=`"),
        (json!({"_when": 1}), "`_when`: expected a condition"),
        (json!({"_instance": []}), "`_instance`: expected a token"),
        (json!({"_detached": "yes"}), "`_detached`: expected true or false"),
        (json!({"_detached": true, "_outputPath": "†state.x"}), "a detached call is not waited for"),
        (json!({"_output": 1}), "`_output` cannot be used with this tool"),
    ] {
        let mut arguments = arguments;
        arguments["n"] = json!(1);
        let message = refusal(arguments);
        assert!(message.contains(reason), "{message}");
    }
}

#[test]
fn literal_arguments_are_validated_at_once() {
    let fitting = read(json!({"n": "†state.n", "text": 5})).unwrap_err();
    assert_eq!(fitting.message, "the arguments do not fit the tool's schema");
    assert_eq!(fitting.details["violations"].as_array().unwrap().len(), 1);
    assert_eq!(fitting.details["violations"][0]["path"], "/text");
    let required = read(json!({"text": "†state.n"})).unwrap_err();
    assert!(required.details["violations"][0]["message"].as_str().unwrap().contains("required"), "{required:?}");
    let unknown = read(json!({"n": {"$ref": "state.n"}, "m": 1})).unwrap_err();
    assert_eq!(unknown.details["violations"].as_array().unwrap().len(), 1);
    let not_json = PlannedCall::read(
        &ToolCall { id: "c".into(), name: "t".into(), arguments: "{".into() },
        &Arc::new(Signature::new(&spec(), all(), &SchemaCache::default()).unwrap()),
    );
    assert!(not_json.unwrap_err().message.starts_with("the arguments are not valid JSON"));
}

#[test]
fn null_counts_as_absent_for_optional_arguments_only() {
    let call = read(json!({"n": 1, "text": null, "deep": null})).unwrap();
    assert_eq!(ready(&call, &log(&json!({}))).arguments, json!({"n": 1}));
    assert!(read(json!({"n": null})).is_err());
}

#[test]
fn wrongly_typed_value_is_blamed_on_its_path() {
    let call = read(json!({"n": "†state.gone || †state.n"})).unwrap();
    let Resolution::Invalid(error) = call.resolve(&log(&json!({"n": "five"})), &|_| Access::Open) else { panic!() };
    assert!(error.message.contains("the value from †state.n is not of the type"), "{}", error.message);
    assert_eq!(error.details["violations"][0]["source"], "†state.n");
    assert_eq!(error.details["violations"][0]["path"], "/n");
}

#[test]
fn referenced_number_becomes_text_where_required() {
    let call = read(json!({"n": "†state.id", "text": "†state.id", "deep": {"list": ["†state.id"]}})).unwrap();
    let arguments = ready(&call, &log(&json!({"id": 12345}))).arguments;
    assert_eq!(arguments, json!({"n": 12345, "text": "12345", "deep": {"list": [12345]}}));
    let long: Value = serde_json::from_str(r#"{"id": 12345678901234567890123}"#).unwrap();
    let arguments = ready(&call, &log(&long)).arguments;
    assert_eq!(arguments["text"], "12345678901234567890123");
    assert_eq!(arguments["n"].to_string(), "12345678901234567890123");
    // A literal that the model wrote is not converted.
    assert!(read(json!({"n": 1, "text": 5})).is_err());
}

#[test]
fn literal_waits_while_an_earlier_call_may_write() {
    let call = read(json!({"n": "†state.n || 5"})).unwrap();
    assert_eq!(missing(&call, &log(&json!({})), &["†state.n"]), ["/n: †state.n"]);
    assert_eq!(ready(&call, &log(&json!({}))).arguments, json!({"n": 5}));
    let lost = call.resolve(&log(&json!({"n": 1})), &|_| Access::Lost);
    let Resolution::Ready(resolved) = lost else { panic!("{lost:?}") };
    assert_eq!(resolved.arguments, json!({"n": 5}), "the writer failed");
}

#[test]
fn oversized_number_in_a_call_is_refused() {
    let text = format!(r#"{{"n": 1, "schema": {{"a": [{}]}}}}"#, "9".repeat(129));
    let call = ToolCall { id: "c".into(), name: "t".into(), arguments: text };
    let signature = Arc::new(Signature::new(&spec(), all(), &SchemaCache::default()).unwrap());
    let message = PlannedCall::read(&call, &signature).unwrap_err().message;
    assert!(message.contains("more than 128 digits") && message.ends_with("(at /schema/a/0)"), "{message}");
}

#[test]
fn call_waits_for_missing_values_and_earlier_writers() {
    let call = read(json!({"n": "†state.n", "text": "†state.a || †state.b"})).unwrap();
    assert_eq!(missing(&call, &log(&json!({})), &[]), ["/n: †state.n", "/text: †state.a, †state.b"]);
    let state = log(&json!({"n": 1, "b": "right"}));
    assert_eq!(missing(&call, &state, &["†state.n.part"]), ["/n: †state.n"]);
    // The other operand of an alternative does not wait.
    let is_pending = |at: &Path| *at == path("†state.a");
    let Resolution::Ready(resolved) = call.resolve(&state, &|at| awaited(is_pending(at))) else { panic!() };
    assert_eq!(resolved.arguments["text"], "right");
}

#[test]
fn earlier_writer_blocks_overlapping_paths_per_instance() {
    let writer = read(json!({"n": 1, "_outputPath": "†state.user"})).unwrap();
    let (one, two) = (Instances::Free.named("①").unwrap(), Instances::Free.named("②").unwrap());
    assert!(writer.may_write(&path("†state.user.name"), None) && writer.may_write(&path("†state"), Some(&one)));
    assert!(!writer.may_write(&path("†state.other"), None));
    let own = read(json!({"n": 1, "_outputPath": "†state.user", "_instance": "①"})).unwrap();
    let reads = [None, Some(&one), Some(&two)].map(|reader| own.may_write(&path("†state.user"), reader));
    assert_eq!(reads, [false, true, false]);
}

#[test]
fn condition_tests_truth_and_awaits_writers_and_approvals() {
    let call = |when: &str| read(json!({"n": 1, "_when": when})).unwrap();
    let held = |when: &str, state: Value| match call(when).resolve(&log(&state), &|_| Access::Open) {
        Resolution::Unmet { condition } => condition == when,
        Resolution::Ready(_) => false,
        other @ (Resolution::Waiting(_) | Resolution::Invalid(_)) => panic!("{other:?}"),
    };
    assert!(held("†state.ok", json!({"ok": 0})) && held("†state.ok", json!({})));
    assert!(!held("†state.ok", json!({"ok": 1})) && !held("!†state.error", json!({})));
    assert_eq!(missing(&call("!†state.error"), &log(&json!({})), &["†state.error"]), ["/_when: †state.error"]);
    assert_eq!(missing(&call("†state.approvals.pay"), &log(&json!({})), &[]), ["/_when: †state.approvals.pay"]);
}

#[test]
fn latent_call_writes_or_defers_its_result() {
    let read = |arguments: Value| read_as(&latent(), all(), &arguments);
    let call = read(json!({"q": 1, "_output": {"verdict": "†state.n"}, "_outputPath": "†state.v"})).unwrap();
    assert!(call.is_latent() && !call.is_deferred() && call.may_write(&path("†state.v"), None));
    let resolved = ready(&call, &log(&json!({"n": 5})));
    assert_eq!((resolved.arguments, resolved.output), (json!({"q": 1}), Some(json!({"verdict": 5}))));
    assert_eq!(resolved.sources[0].argument, "/_output/verdict");
    let deferred = read(json!({"_output": null, "_outputPath": "†state.v"})).unwrap();
    assert!(deferred.is_deferred() && !deferred.may_write(&path("†state.v"), None));
    let unfit = read(json!({"_output": {}})).unwrap_err();
    assert_eq!(unfit.message, "`_output` does not fit the tool's output schema");
}

#[test]
fn resolved_arguments_over_the_size_limit_are_refused() {
    let free = ToolSpec { parameters: json!({"type": "object"}), ..spec() };
    let call = read_as(&free, all(), &json!({"list": vec!["†state.big"; 10]})).unwrap();
    let state = log(&json!({"big": "x".repeat(1_000_000)}));
    let Resolution::Invalid(error) = call.resolve(&state, &|_| Access::Open) else { panic!() };
    assert!(error.message.contains("the arguments have 10000"), "{}", error.message);
}

#[test]
fn last_completion_wins_and_conflict_is_reported() {
    let mut log = log(&json!({}));
    write(&mut log, 2, "first", "†state.x", Method::Set, json!({"a": 1}));
    write(&mut log, 2, "second", "†state.x.a", Method::Set, json!(2));
    write(&mut log, 2, "second", "†state.x.b", Method::Merge, json!(3));
    assert_eq!(seen(&log, "†state.x", None), Some(json!({"a": 2, "b": 3})));
    let conflicts = serde_json::to_value(log.conflicts(2)).unwrap();
    assert_eq!(conflicts, json!([{"path": "†state.x.a", "kept": "second", "overwritten": "first"}]));
    assert_eq!(log.conflicts(1), []);
}

#[test]
fn each_write_method_folds_as_documented() {
    for (writes, expected) in [
        (vec![(Method::Push, json!(1)), (Method::Push, json!([2]))], json!([1, [2]])),
        (
            vec![(Method::Concat, json!([1])), (Method::Concat, json!([2, 3])), (Method::Concat, json!(4))],
            json!([1, 2, 3, 4]),
        ),
        (vec![(Method::Set, json!("a")), (Method::Concat, json!("b"))], json!("ab")),
        (
            vec![(Method::Set, json!({"u": {"a": 1, "b": 2}})), (Method::Merge, json!({"u": {"b": 3}, "v": 1}))],
            json!({"u": {"a": 1, "b": 3}, "v": 1}),
        ),
        (
            vec![(Method::Set, json!({"u": {"a": 1}, "w": 0})), (Method::Assign, json!({"u": {"b": 3}}))],
            json!({"u": {"b": 3}, "w": 0}),
        ),
        (vec![(Method::Push, json!(1)), (Method::Set, json!(null)), (Method::Push, json!(2))], json!([2])),
        (vec![(Method::Set, json!(1)), (Method::Push, json!(2))], json!([1, 2])),
    ] {
        let mut log = log(&json!({}));
        for (method, value) in &writes {
            write(&mut log, 1, "c", "†data.x", *method, value.clone());
        }
        assert_eq!(seen(&log, "†data.x", None), Some(expected), "{writes:?}");
    }
}

#[test]
fn partial_write_keeps_siblings_and_whole_replaces_them() {
    let mut log = log(&json!({"user": {"name": "Ada", "status": "new"}}));
    write(&mut log, 2, "c", "†state.user.status", Method::Set, json!("old"));
    assert_eq!(seen(&log, "†state.user.name", None), Some(json!("Ada")));
    assert_eq!(seen(&log, "†state.user", None), Some(json!({"name": "Ada", "status": "old"})));
    write(&mut log, 3, "c", "†state.user", Method::Set, json!({"status": null}));
    assert_eq!(seen(&log, "†state.user.name", None), None);
    assert_eq!(seen(&log, "†state.user.status", None), Some(json!(null)));
}

#[test]
fn sibling_write_changes_a_list_built_above_it() {
    let mut log = log(&json!({}));
    write(&mut log, 1, "c", "†state.x.a", Method::Set, json!(null));
    write(&mut log, 1, "c", "†state.x", Method::Concat, json!({"b": 1}));
    assert_eq!(seen(&log, "†state.x.b", None), None);
    assert_eq!(seen(&log, "†state.x.1.b", None), Some(json!(1)));
    write(&mut log, 1, "c", "†state.x.c", Method::Set, json!(2));
    assert_eq!(seen(&log, "†state.x.1.b", None), None);
}

#[test]
fn instance_sees_its_writes_over_shared_ones() {
    let orders = InstancesSpec { over: Some("orders".into()) };
    let mut log = log_with(&json!({"user": {"name": "Ada"}}), Some(&orders));
    let [one, two] = ["1", "2"].map(|token| Instances::Items(2).named(token).unwrap());
    log.write(CallWrite {
        tick: 1,
        call_id: "c".into(),
        instance: Some(one.clone()),
        paths: vec![path("†state.user.status")],
        method: Method::Set,
        value: json!("mine"),
    })
    .unwrap();
    assert_eq!(seen(&log, "†state.user", Some(&one)), Some(json!({"name": "Ada", "status": "mine"})));
    assert_eq!(seen(&log, "†state.user", Some(&two)), Some(json!({"name": "Ada"})));
    assert_eq!(seen(&log, "†state.user.status", None), None);
    let input = |text: &str, of| seen(&log, text, of);
    assert_eq!(input("†input.id", Some(&two)), Some(json!(2)));
    assert_eq!(input("†input.city", Some(&one)), Some(json!("Rome")));
    assert_eq!(input("†input.city", Some(&two)), Some(json!("Oslo")));
    assert_eq!(input("†input.id", None), None);
}

#[test]
fn oversized_write_is_refused_as_a_whole() {
    let limits = StateLimits { value_bytes: 12, total_bytes: 20 };
    let mut log = StateLog::new(json!({}), None, limits);
    let write = |log: &mut StateLog, tick, at: &[&str], value: &str| {
        let paths = at.iter().map(|at| path(at)).collect();
        let value = json!(value);
        log.write(CallWrite { tick, call_id: "c".into(), instance: None, paths, method: Method::Set, value })
    };
    let too_large = write(&mut log, 1, &["†state.a"], &"x".repeat(11)).unwrap_err();
    assert_eq!(too_large, StateError::ValueTooLarge { bytes: 13, max: 12 });
    assert!(write(&mut log, 1, &["†state.a"], &"x".repeat(8)).is_ok());
    let full = write(&mut log, 1, &["†state.b", "†state.c"], "xxxx").unwrap_err();
    assert_eq!(full, StateError::StateTooLarge { bytes: 22, max: 20 });
    assert_eq!(seen(&log, "†state.b", None), None);
}

#[test]
fn writes_restored_in_any_order_yield_equal_state() {
    let mut original = log(&json!({}));
    let mut recorded = Vec::new();
    for (at, method, value) in [
        ("†state.x", Method::Set, json!([1])),
        ("†state.x", Method::Push, json!(2)),
        ("†state.x", Method::Push, json!(3)),
    ] {
        let write = CallWrite { tick: 1, call_id: "c".into(), instance: None, paths: vec![path(at)], method, value };
        recorded.push(original.write(write).unwrap());
    }
    let mut restored = log(&json!({}));
    for writes in recorded.into_iter().rev() {
        let text = serde_json::to_string(&writes).unwrap();
        for _twice in 0..2 {
            restored.restore(serde_json::from_str(&text).unwrap());
        }
    }
    assert_eq!(seen(&restored, "†state.x", None), Some(json!([1, 2, 3])));
    write(&mut restored, 2, "next", "†state.x", Method::Push, json!(4));
    assert_eq!(seen(&restored, "†state.x", None), Some(json!([1, 2, 3, 4])));
}

#[test]
fn finished_calls_are_readable_and_nearest_paths_suggested() {
    let mut log = log(&json!({"report": 1}));
    log.finish_call("call_1", json!({"a": [1]}));
    assert_eq!(seen(&log, "†calls.call_1.a.0", None), Some(json!(1)));
    assert_eq!(seen(&log, "†calls.call_2", None), None);
    let nearest: Vec<_> = log.nearest(&path("†state.reprot")).iter().map(ToString::to_string).collect();
    assert_eq!(nearest[0], "†state.report");
    assert_eq!(nearest.len(), 4);
}
