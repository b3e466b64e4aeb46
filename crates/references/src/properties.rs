//! Property tests of paths, expressions and lists of writes.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use longhaul_domain::ToolCall;
use longhaul_guards::json_schema::SchemaCache;
use longhaul_sdk::{ToolEffect, ToolSpec, spec::AgentLimits};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{
    Access, CallWrite, Features, Instance, Path, PlannedCall, Resolution, Signature, StateLimits, StateLog,
    expression::{InputExpression, OutputExpression},
    fold::Method,
    path::Kind,
};

fn any_path() -> impl Strategy<Value = Path> {
    let segment = prop_oneof![4 => "[a-zé①_-]{1,6}", 1 => any::<String>(), 1 => "[0-9]{1,2}"];
    (prop::sample::select(Kind::ALL.to_vec()), vec(segment, 0..5))
        .prop_map(|(kind, segments)| Path { kind, segments })
        .prop_filter("longer than any expression may be", |path| path.to_string().len() < 100)
}

fn groups(operand: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    vec(vec(operand, 1..3).prop_map(|group| group.join(" || ")), 1..3).prop_map(|groups| groups.join(" && "))
}

/// Few names, so that writes overlap.
fn written_path() -> impl Strategy<Value = Path> {
    vec(prop::sample::select(vec!["a", "b"]), 1..4)
        .prop_map(|names| Path { kind: Kind::State, segments: names.into_iter().map(str::to_owned).collect() })
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(null)), Just(json!(0)), Just(json!("x")), (1..9).prop_map(|n| json!(n))];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::Array),
            vec((prop::sample::select(vec!["a", "b"]), inner), 0..3).prop_map(|members| {
                Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

#[derive(Debug, Clone)]
struct Written {
    tick: u32,
    instance: Option<usize>,
    path: Path,
    method: Method,
    value: Value,
}

fn writes() -> impl Strategy<Value = Vec<Written>> {
    let method = prop::sample::select(Method::ALL.to_vec());
    let write = (prop::option::weighted(0.4, 0..2_usize), written_path(), method, any_value());
    vec(write, 0..14).prop_map(|writes| {
        let numbered = writes.into_iter().enumerate();
        // Three writes per turn.
        numbered
            .map(|(at, (instance, path, method, value))| Written { tick: at as u32 / 3, instance, path, method, value })
            .collect()
    })
}

/// Naive model: one document to which every write is applied in order.
fn document<'a>(writes: impl Iterator<Item = &'a Written>) -> Option<Value> {
    writes.fold(None, |document, write| Some(applied(document, &write.path.segments, write)))
}

fn applied(old: Option<Value>, segments: &[String], write: &Written) -> Value {
    let Some((first, rest)) = segments.split_first() else { return write.method.apply(old, write.value.clone()) };
    let mut members = old.and_then(|old| old.as_object().cloned()).unwrap_or_default();
    let member = applied(members.get(first).cloned(), rest, write);
    members.insert(first.clone(), member);
    Value::Object(members)
}

/// JSON of every kind, including texts that look like references.
fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        "[†a-z.|& $\\[\\]]{0,12}",
        select(vec!["†state.a", "†state.a || †state.b", "†state.b && 1", "†data", "†", "†state.a.0 || \"x\""])
            .prop_map(str::to_owned),
    ];
    let written = "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?(e-?[0-9]{1,2})?";
    let number = prop_oneof![
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
        written.prop_map(|text| serde_json::from_str(&text).unwrap()),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number,
        text.clone().prop_map(Value::String)
    ];
    let key = prop_oneof![
        3 => "[a-z]{1,3}",
        1 => text,
        1 => select(vec!["$ref", "_when", "_outputPath", "_output", "_method", "_instance",
            "_detached"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(key.clone(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A tool that accepts any arguments.
fn open_tool(features: Features) -> Arc<Signature> {
    let spec = ToolSpec {
        name: "t".into(),
        description: String::new(),
        parameters: json!({"type": "object"}),
        effect: ToolEffect::ReadOnly,
        latent_output: None,
        is_strict: false,
        mended: None,
    };
    Arc::new(Signature::new(&spec, features, &SchemaCache::default()).unwrap())
}

fn with_references() -> Features {
    Features { references: true, destinations: true, conditions: true, ..Features::default() }
}

fn holding(state: &BTreeMap<&str, Value>) -> StateLog {
    let mut log = StateLog::new(json!({}), None, StateLimits::from(&AgentLimits::default()));
    for (name, value) in state {
        let paths = vec![format!("†state.{name}").parse().unwrap()];
        let (call_id, value) = ((*name).to_owned(), value.clone());
        log.write(CallWrite { tick: 1, call_id, instance: None, paths, method: Method::Set, value }).unwrap();
    }
    log
}

fn call(arguments: &Value) -> ToolCall {
    ToolCall { id: "c".into(), name: "t".into(), arguments: arguments.to_string() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_referenced_value_arrives_unchanged(value in any_json(), at in 0..3_usize) {
        let log = holding(&BTreeMap::from([("a", value.clone())]));
        // At top level, in a list, in an object. A value that looks like a reference is not resolved again.
        let (arguments, pointer) = match at {
            0 => (json!({"x": "†state.a"}), "/x"),
            1 => (json!({"x": [1, "†state.a"]}), "/x/1"),
            _ => (json!({"x": {"y": {"$ref": "state.a"}}}), "/x/y"),
        };
        let planned = PlannedCall::read(&call(&arguments), &open_tool(with_references())).unwrap();
        match planned.resolve(&log, &|_| Access::Open) {
            Resolution::Ready(resolved) => {
                let stored = log.read(&"†state.a".parse().unwrap(), None).unwrap().into_owned();
                prop_assert_eq!(resolved.arguments.pointer(pointer), Some(&stored));
                prop_assert_eq!(stored, value);
            }
            other @ (Resolution::Waiting(_) | Resolution::Unmet { .. } | Resolution::Invalid(_)) => {
                prop_assert!(false, "{:?}", other);
            }
        }
    }

    #[test]
    fn resolution_of_expressions_equals_the_naive_model(
        groups in vec(vec(select(vec!["a", "b", "c"]), 1..4), 1..4),
        state in prop::collection::btree_map(select(vec!["a", "b", "c"]), any_value(), 0..4),
        pending in option_of_name(),
    ) {
        let path = |name: &&str| format!("†state.{name}");
        let text = groups.iter().map(|group| group.iter().map(path).collect::<Vec<_>>().join(" || "));
        let arguments = json!({"x": text.collect::<Vec<_>>().join(" && ")});
        let planned = PlannedCall::read(&call(&arguments), &open_tool(with_references())).unwrap();
        let log = holding(&state);
        let is_pending = |at: &Path| Some(at.to_string()) == pending.map(|name| path(&name));
        // Naive model: a path that an earlier call may still write does not exist.
        let there = |name: &&&str| Some(**name) != pending && state.contains_key(*name);
        let firsts: Vec<Option<&&str>> = groups.iter().map(|group| group.iter().find(there)).collect();
        let expected = firsts.iter().copied().collect::<Option<Vec<_>>>().and_then(|all| all.last().copied());
        match (planned.resolve(&log, &|at| if is_pending(at) { Access::Awaited } else { Access::Open }), expected) {
            (Resolution::Ready(resolved), Some(name)) => prop_assert_eq!(&resolved.arguments["x"], &state[*name]),
            (Resolution::Waiting(missing), None) => {
                prop_assert_eq!(missing.len(), firsts.iter().filter(|first| first.is_none()).count());
            }
            (other, expected) => prop_assert!(false, "{:?}, but {:?}", other, expected),
        }
    }

    #[test]
    fn any_arguments_are_read_and_resolved_without_panic(
        arguments in any_json(),
        state in prop::collection::btree_map(select(vec!["a", "b"]), any_json(), 0..3),
        has_references in any::<bool>(),
    ) {
        let features = if has_references { with_references() } else { Features::default() };
        let Ok(planned) = PlannedCall::read(&call(&arguments), &open_tool(features)) else { return Ok(()) };
        let resolution = planned.resolve(&holding(&state), &|_| Access::Open);
        // Without references the arguments are unchanged.
        if !has_references {
            match resolution {
                Resolution::Ready(resolved) => prop_assert_eq!(resolved.arguments, arguments),
                other @ (Resolution::Waiting(_) | Resolution::Unmet { .. } | Resolution::Invalid(_)) => {
                    prop_assert!(false, "{:?}", other);
                }
            }
        }
        prop_assert!(planned.reads().len() + planned.writes().len() < 1_000);
    }
}

fn option_of_name() -> impl Strategy<Value = Option<&'static str>> {
    prop::option::of(select(vec!["a", "b", "c"]))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn path_round_trips_through_its_text(path in any_path()) {
        let text = path.to_string();
        prop_assert_eq!(text.parse::<Path>().unwrap(), path);
    }

    #[test]
    fn expression_round_trips_through_its_canonical_text(
        input in groups(prop_oneof![any_path().prop_map(|path| path.to_string()), any_value().prop_filter_map(
            "no literal of the grammar",
            |value| (!value.is_array() && !value.is_object()).then(|| value.to_string()),
        )]),
        output in groups(any_path().prop_map(|path| path.to_string())),
    ) {
        prop_assume!(input.len() <= 1_000 && output.len() <= 1_000);
        if let Ok(parsed) = InputExpression::parse(&input, false) {
            prop_assert_eq!(parsed.to_string(), input.as_str());
            prop_assert_eq!(InputExpression::parse(&input, false).unwrap(), parsed);
        } else {
            prop_assert!(!input.contains('†'), "{}", input);
        }
        let parsed = OutputExpression::parse(&output, false).unwrap();
        prop_assert_eq!(parsed.to_string(), output);
    }

    #[test]
    fn any_text_parses_or_returns_an_error(text in "[†a-z.|&<>*()!='\"0-9 \\[\\]\\\\]{0,40}") {
        for is_bare in [false, true] {
            if let Ok(parsed) = InputExpression::parse(&text, is_bare) {
                prop_assert_eq!(InputExpression::parse(&parsed.to_string(), false).unwrap(), parsed);
            }
        }
        if let Ok(condition) = super::condition::Condition::parse(&text) {
            condition.holds(&mut |_| None);
        }
    }

    #[test]
    fn fold_equals_applying_all_writes_in_order(writes in writes(), path in written_path()) {
        let mut log = StateLog::new(json!({}), None, StateLimits::from(&AgentLimits::default()));
        let mut recorded = Vec::new();
        for (at, write) in writes.iter().enumerate() {
            let Written { tick, instance, path, method, value } = write.clone();
            let instance = instance.map(Instance::numbered);
            let call = CallWrite { tick, call_id: at.to_string(), instance, paths: vec![path], method, value };
            recorded.push((tick, log.write(call).unwrap()));
        }
        // Restored turn by turn, but within a turn from the last call to the first.
        let mut restored = StateLog::new(json!({}), None, StateLimits::from(&AgentLimits::default()));
        recorded.reverse();
        recorded.sort_by_key(|(tick, _)| *tick);
        recorded.into_iter().for_each(|(_, writes)| restored.restore(writes));

        for reader in [None, Some(0), Some(1)] {
            let global = writes.iter().filter(|write| write.instance.is_none());
            let own = writes.iter().filter(|write| reader.is_some() && write.instance == reader);
            let expected = document(global.chain(own)).and_then(|document| path.find(&document).cloned());
            let instance = reader.map(Instance::numbered);
            prop_assert_eq!(log.read(&path, instance.as_ref()).map(Cow::into_owned), expected.clone());
            prop_assert_eq!(restored.read(&path, instance.as_ref()).map(Cow::into_owned), expected);
        }
    }
}
