//! References between the calls of one reply: which call waits for which, and which value is read.

use longhaul_sdk::DefinitionSpec;
use longhaul_testkit::model::{Gate, ev_call, ev_gate, reply_events, reply_text};
use serde_json::{Value, json};

use super::kit::{Run, Stage, Wire, any_answer, referring, work};

#[tokio::test]
async fn call_reading_a_path_waits_for_its_writer_c09() {
    for wire in Wire::ALL {
        let stage = Stage::default().hold("object").hold("number").hold("null");
        let reply = reply_events([
            work("object", json!({"value": {"k": [1]}, "_outputPath": "†state.object"})),
            work("number", json!({"value": 7, "_outputPath": "†state.number"})),
            work("null", json!({"value": null, "_outputPath": "†state.null"})),
            work("reads_object", json!({"value": "†state.object"})),
            work("reads_part", json!({"value": "†state.object.k.0"})),
            // An integer everywhere else, a reference here.
            work("reads_number", json!({"n": "†state.number", "value": 1})),
            work("reads_null", json!({"value": {"$ref": "state.null"}})),
            work("last", json!({})),
        ]);
        let (fleet, replies) = (wire.fleet().await, [reply, reply_text("done")]);
        let run = Run::start_on(fleet, &any_answer(), &referring(), &stage, json!({}), replies).await;
        // Calls are taken in order: when the last one runs, every reader before it had its chance.
        stage.started("last").await;
        for held in ["object", "number", "null"] {
            stage.release(held);
        }
        run.finished().await;
        for (writer, reader) in
            [("object", "reads_object"), ("object", "reads_part"), ("number", "reads_number"), ("null", "reads_null")]
        {
            stage.assert_before(&format!("-{writer}"), &format!("+{reader}"));
            stage.assert_before("+last", &format!("+{reader}"));
        }
        assert_eq!(stage.arguments("reads_object")["value"], json!({"k": [1]}));
        assert_eq!(stage.arguments("reads_part")["value"], json!(1));
        assert_eq!(stage.arguments("reads_number")["n"], json!(7));
        assert_eq!(stage.arguments("reads_null")["value"], json!(null));
        assert_eq!(run.told(1).value("reads_object"), json!({"k": [1]}), "{wire:?}");
    }
}

#[tokio::test]
async fn reader_streamed_before_its_writer_waits_without_error_c10() {
    let stage = Stage::default();
    let open = Gate::new();
    let reply = reply_events([
        work("reader", json!({"value": "†state.a"})),
        work("between", json!({})),
        work("after", json!({})),
        ev_gate(&open),
        work("writer", json!({"value": "a", "_outputPath": "†state.a"})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    stage.ended("between").await;
    assert_eq!(stage.runs("reader"), 0);
    open.open();
    run.finished().await;
    stage.assert_before("-writer", "+reader");
    assert_eq!(stage.arguments("reader")["value"], "a");
    assert_eq!(run.told(1).value("reader"), json!("a"));
}

#[tokio::test]
async fn diamond_runs_sides_together_and_its_end_once_c11() {
    let stage = Stage::default().hold("left").hold("right");
    let reply = reply_events([
        work("top", json!({"value": 1, "_outputPath": "†state.top"})),
        work("left", json!({"value": {"l": "†state.top"}, "_outputPath": "†state.left"})),
        work("right", json!({"value": {"r": "†state.top"}, "_outputPath": "†state.right"})),
        work("bottom", json!({"value": ["†state.left", "†state.right"]})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    // Both are at their gates at the same time.
    stage.started("left").await;
    stage.started("right").await;
    stage.release("right");
    stage.ended("right").await;
    stage.release("left");
    run.finished().await;
    assert_eq!(stage.log().len(), 8, "{:?}", stage.log());
    stage.assert_before("-left", "+bottom");
    assert_eq!(stage.arguments("bottom")["value"], json!([{"l": 1}, {"r": 1}]));
}

#[tokio::test]
async fn reference_deep_inside_arguments_is_resolved_c12() {
    let stage = Stage::default();
    let reply = reply_events([
        work("a", json!({"value": 3, "_outputPath": "†state.a"})),
        work("b", json!({"deep": {"items": [{"n": 1}, {"n": "†state.a"}, {"n": {"$ref": "†state.a"}}]}})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    assert_eq!(stage.arguments("b")["deep"], json!({"items": [{"n": 1}, {"n": 3}, {"n": 3}]}));
}

#[tokio::test]
async fn embedded_reference_fails_and_doubled_dagger_is_text_c13() {
    let stage = Stage::default();
    let reply = reply_events([
        work("a", json!({"value": "†", "_outputPath": "†state.a"})),
        work("embedded", json!({"value": "see †state.a"})),
        work("literal", json!({"value": "††x"})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    let told = run.told(1);
    // The argument of the first call is a dagger alone, which is no reference either.
    for refused in ["a", "embedded"] {
        assert_eq!((stage.runs(refused), told.error(refused).as_deref()), (0, Some("structural")));
        assert!(told.message(refused).starts_with("at /value: "), "{}", told.message(refused));
    }
    assert_eq!(told.value("embedded")["call"]["arguments"]["value"], "see †state.a");
    assert_eq!(stage.arguments("literal")["value"], "†x");
}

#[tokio::test]
async fn dagger_in_a_tool_result_is_never_resolved_c14() {
    let stage = Stage::default().answers("poisoned", "†state.secret");
    let reply = reply_events([
        work("secret", json!({"value": "s3cret", "_outputPath": "†state.secret"})),
        work("poisoned", json!({"_outputPath": "†state.page"})),
        work("reader", json!({"value": "†state.page"})),
        work("deep_reader", json!({"value": {"inside": ["†state.page", "†input.text"]}})),
    ]);
    let run = Run::start(&referring(), &stage, json!({"text": "†state.secret"}), [reply]).await;
    run.finished().await;
    assert_eq!(stage.arguments("reader")["value"], "†state.secret");
    assert_eq!(stage.arguments("deep_reader")["value"], json!({"inside": ["†state.secret", "†state.secret"]}));
    assert_eq!(run.told(1).text("poisoned"), "†state.secret");
}

#[tokio::test]
async fn alternative_is_read_once_one_side_exists_c15() {
    let stage = Stage::default().hold("slow");
    let falsy = [("zero", json!(0)), ("no", json!(false)), ("blank", json!(""))];
    let mut first = vec![
        work("slow", json!({"value": "left", "_outputPath": "†state.slow"})),
        work("fast", json!({"value": "right", "_outputPath": "†state.fast"})),
        work("at_once", json!({"value": "†state.slow || †state.fast"})),
        work("never_written", json!({"value": "†state.nothing || †state.fast"})),
    ];
    let mut second = vec![work("both", json!({"value": "†state.slow || †state.fast"}))];
    for (name, value) in &falsy {
        first.push(work(name, json!({"value": value, "_outputPath": format!("†state.{name}")})));
        let either = format!("†state.{name} <|> †state.fast");
        second.push(work(&format!("reads_{name}"), json!({ "value": either })));
    }
    let replies = [first, second].map(reply_events);
    let run = Run::start(&referring(), &stage, json!({}), replies).await;
    stage.ended("at_once").await;
    stage.release("slow");
    run.finished().await;
    stage.assert_before("-at_once", "-slow");
    assert_eq!(stage.arguments("at_once")["value"], "right");
    assert_eq!(stage.arguments("never_written")["value"], "right");
    assert_eq!(stage.arguments("both")["value"], "left");
    for (name, value) in falsy {
        assert_eq!(stage.arguments(&format!("reads_{name}"))["value"], value);
    }
}

#[tokio::test]
async fn conjunction_waits_for_both_and_is_the_last_c16() {
    let stage = Stage::default().hold("a").hold("b");
    let reply = reply_events([
        work("a", json!({"value": "first", "_outputPath": "†state.a"})),
        work("b", json!({"value": "second", "_outputPath": "†state.b"})),
        work("after_a", json!({"value": "†state.a"})),
        work("after_b", json!({"value": "†state.b"})),
        work("both", json!({"value": "†state.a && †state.b"})),
        work("both_spelled_otherwise", json!({"value": "†state.b *> †state.a"})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    stage.started("a").await;
    stage.release("b");
    stage.ended("after_b").await;
    assert_eq!((stage.runs("both"), stage.runs("both_spelled_otherwise")), (0, 0));
    stage.release("a");
    run.finished().await;
    assert_eq!(stage.arguments("both")["value"], "second");
    assert_eq!(stage.arguments("both_spelled_otherwise")["value"], "first");
}

#[tokio::test]
async fn conjunction_writes_all_paths_alternative_writes_one_c17() {
    let stage =
        Stage::default().answers_at("chosen", "2", "†state.rejected").answers_at("astray", "3", "†state.elsewhere");
    let reply = reply_events([
        work("all", json!({"value": 1, "_outputPath": "†state.x && †data.y"})),
        work("chosen", json!({"_outputPath": "†state.accepted || †state.rejected"})),
        work("first", json!({"value": 4, "_outputPath": "†state.one || †state.other"})),
        work("astray", json!({"_outputPath": "†state.here || †state.there"})),
        work("reader", json!({"value": ["†state.x", "†data.y", "†state.rejected", "†state.one"]})),
        work("branch", json!({"value": "†state.accepted"})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    assert_eq!(stage.arguments("reader")["value"], json!([1, 1, 2, 4]));
    assert_eq!(stage.runs("branch"), 0);
    let told = run.told(1);
    assert_eq!(told.error("astray").as_deref(), Some("runtime"));
    assert!(told.message("astray").contains("the tool chose †state.elsewhere"), "{}", told.message("astray"));
}

#[tokio::test]
async fn program_order_selects_the_old_or_new_value_c18() {
    let stage = Stage::default().hold("rewrite");
    let first = reply_events([work("write", json!({"value": "old", "_outputPath": "†state.x"}))]);
    let second = reply_events([
        work("before", json!({"value": "†state.x"})),
        work("rewrite", json!({"value": "new", "_outputPath": "†state.x"})),
        work("after", json!({"value": "†state.x"})),
        work("last", json!({})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [first, second]).await;
    stage.started("last").await;
    stage.ended("before").await;
    stage.release("rewrite");
    run.finished().await;
    stage.assert_before("-rewrite", "+after");
    assert_eq!(stage.arguments("before")["value"], "old");
    assert_eq!(stage.arguments("after")["value"], "new");
}

#[tokio::test]
async fn writes_to_parts_fold_and_hide_no_sibling_c19() {
    let stage = Stage::default();
    let write = |name: &str, path: &str, method: &str, value: Value| {
        work(name, json!({"value": value, "_outputPath": path, "_outputMethod": method}))
    };
    // One turn each, so that they complete in this order.
    let turns = [
        write("w1", "†state.user", "set", json!({"name": "Ada", "tags": {"a": 1}, "log": ["x"]})),
        write("w2", "†state.user.status", "set", json!("busy")),
        write("w3", "†state.user.tags", "merge", json!({"b": 2})),
        write("w4", "†state.user.log", "push", json!("y")),
        write("w5", "†state.user.log", "concat", json!(["z"])),
        write("w6", "†state.user", "assign", json!({"tags": {"c": 3}})),
        work("reader", json!({"value": ["†state.user.name", "†state.user"]})),
    ];
    let run = Run::start(&referring(), &stage, json!({}), turns.map(|turn| reply_events([turn]))).await;
    run.finished().await;
    let user = json!({"name": "Ada", "status": "busy", "tags": {"c": 3}, "log": ["x", "y", "z"]});
    assert_eq!(stage.arguments("reader")["value"], json!(["Ada", user]));
}

#[tokio::test]
async fn later_completion_wins_and_the_conflict_is_recorded_c20() {
    let stage = Stage::default().hold("first").hold("second");
    let reply = reply_events([
        work("first", json!({"value": "of the first", "_outputPath": "†state.x"})),
        work("second", json!({"value": "of the second", "_outputPath": "†state.x"})),
    ]);
    let read = reply_events([work("reader", json!({"value": "†state.x"}))]);
    let run = Run::start(&referring(), &stage, json!({}), [reply, read]).await;
    stage.started("first").await;
    stage.started("second").await;
    stage.release("second");
    // Its result is recorded before the first call ends.
    run.fleet.until(run.id, "the second call is recorded", |row| row["calls"] == 1).await;
    stage.release("first");
    run.finished().await;
    assert_eq!(stage.arguments("reader")["value"], "of the first");
    let conflicts = run.events("state_conflict").await;
    assert_eq!(conflicts, [json!({"path": "†state.x", "kept": "first", "overwritten": "second"})]);
}

#[tokio::test]
async fn long_numbers_survive_from_input_to_output() {
    let (wei, share) =
        ("123456789012345678901234567890123456789012345678901234567890", "0.1234567890123456789012345678901234567890");
    let written = format!(r#"{{"share":{share},"wei":{wei}}}"#);
    let input: Value = serde_json::from_str(&format!(r#"{{"share":{share},"text":"x","wei":{wei}}}"#)).unwrap();
    let exact: Value = serde_json::from_str(&written).unwrap();
    let definition = DefinitionSpec {
        prompt: Some("{{ input.wei }} {{ input.share }}".into()),
        output_schema: Some(json!({"type": "object", "properties": {"wei": {"minimum": 1}, "share": {"maximum": 1}}})),
        ..DefinitionSpec::new("d", "a")
    };
    let stage = Stage::default().answers("text", wei);
    let replies = [
        reply_events([
            work("writes", json!({"value": exact, "_outputPath": "†state.amounts"})),
            work("text", json!({"_outputPath": "†state.id"})),
            work("reads", json!({"value": ["†state.amounts.wei", "†state.amounts.share", "†state.id", "†input.wei"]})),
        ]),
        reply_events([ev_call("out", "submit_output", &json!({"output": exact}))]),
    ];
    let run = Run::start_as(&definition, &referring(), &stage, input, replies).await;
    let row = run.finished().await;
    let requests = run.fleet.llm.requests();
    let prompt = format!("{wei} {share}");
    assert!(
        requests[0].messages().iter().any(|message| message["content"] == json!(prompt)),
        "{:?}",
        requests[0].messages()
    );
    assert_eq!(stage.arguments("writes")["value"].to_string(), written);
    assert_eq!(run.told(1).text("writes"), written);
    assert_eq!(stage.arguments("reads")["value"].to_string(), format!("[{wei},{share},{wei},{wei}]"));
    assert_eq!(run.told(1).text("reads"), format!("[{wei},{share},{wei},{wei}]"));
    assert_eq!(row["output"].to_string(), written);
}

#[tokio::test]
async fn defaults_of_the_input_schema_reach_prompts_and_references() {
    let definition = DefinitionSpec {
        input_schema: json!({"type": "object", "properties": {"n": {"type": "integer", "default": 10}}}),
        prompt: Some("Take {{ input.n }}.".into()),
        ..any_answer()
    };
    let stage = Stage::default();
    let reply = reply_events([work("reads", json!({"value": "†input.n"}))]);
    let run = Run::start_as(&definition, &referring(), &stage, json!({}), [reply, reply_text("done")]).await;
    run.finished().await;
    let requests = run.fleet.llm.requests();
    assert!(requests[0].messages().iter().any(|message| message["content"] == "Take 10."));
    assert_eq!(stage.arguments("reads")["value"], json!(10));
}

#[tokio::test]
async fn long_number_keeps_its_digits_through_calls_and_references() {
    let value: Value = serde_json::from_str(r#"{"wei": 12345678901234567890123, "price": 1.10}"#).unwrap();
    let stage = Stage::default().answers("text", "1e5").answers("id", "12345678901234567890123");
    let reply = reply_events([
        work("object", json!({"value": value, "_outputPath": "†state.object"})),
        work("text", json!({"_outputPath": "†state.text"})),
        work("id", json!({"_outputPath": "†state.id"})),
        work("reads", json!({"value": ["†state.object.wei", "†state.object.price", "†state.text", "†state.id"]})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    run.finished().await;
    assert_eq!(stage.arguments("object")["value"].to_string(), r#"{"price":1.10,"wei":12345678901234567890123}"#);
    let read = stage.arguments("reads")["value"].to_string();
    assert_eq!(read, r#"[12345678901234567890123,1.10,"1e5",12345678901234567890123]"#);
    assert_eq!(run.told(1).value("reads").to_string(), read);
}

#[tokio::test]
async fn literal_alternative_waits_for_a_writer_of_the_reply() {
    let stage = Stage::default().hold("writer").fails("fails", "no");
    let reply = reply_events([
        work("writer", json!({"value": 7, "_outputPath": "†state.n"})),
        work("fails", json!({"_outputPath": "†state.m"})),
        work("reader", json!({"value": "†state.n || 5"})),
        work("of_failed", json!({"value": "†state.m || 5"})),
        work("circle", json!({"value": "†state.late", "_outputPath": "†state.early"})),
        work("breaks", json!({"value": "†state.early || 5", "_outputPath": "†state.late"})),
        work("last", json!({})),
    ]);
    let run = Run::start(&referring(), &stage, json!({}), [reply]).await;
    stage.ended("last").await;
    assert_eq!(stage.runs("reader"), 0);
    stage.release("writer");
    run.finished().await;
    let values = ["reader", "of_failed", "breaks", "circle"].map(|call| stage.arguments(call)["value"].clone());
    assert_eq!(values, [json!(7), json!(5), json!(5), json!(5)]);
}
