//! Bytes written by a long execution: each turn writes its own delta, so they grow with the turns and not with their
//! square.

use std::{fmt::Write as _, time::Duration};

use longhaul_sdk::{
    DefinitionSpec, ToolEffect,
    spec::{AgentLimits, AgentSpec, ModelSpec, ToolRef},
};
use serde_json::json;
use sha2::{Digest, Sha256};
use sqlx::Row;

use super::kit::TestTool;
use crate::support::{
    fleet::{Fleet, agent},
    wait::eventually,
};

const TURNS: u32 = 300;
const RESULT_BYTES: usize = 200_000;

/// Hex text of hashes, which compresses little; the same for the same number.
fn page(number: usize) -> String {
    let mut text = String::with_capacity(RESULT_BYTES + 64);
    let mut block = Sha256::digest(number.to_be_bytes());
    while text.len() < RESULT_BYTES {
        for byte in &block {
            write!(text, "{byte:02x}").unwrap();
        }
        block = Sha256::digest(block);
    }
    text.truncate(RESULT_BYTES);
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn written_bytes_grow_linearly_with_turns() {
    let fleet = Fleet::start().await;
    let script = format!(
        concat!(
            r#"{{% if turn <= {turns} %}}{{{{ calls([call("page", {{"value": turn}})]) }}}}"#,
            r#"{{% else %}}{{{{ text({{"turns": turn}}) }}}}{{% endif %}}"#
        ),
        turns = TURNS
    );
    let reader = AgentSpec {
        model: ModelSpec { provider: Some("scripted".into()), script: Some(script), ..ModelSpec::default() },
        tools: vec![ToolRef::Name("page".into())],
        limits: AgentLimits {
            max_turns: TURNS + 10,
            max_tool_result_bytes: 262_144,
            context_tokens: 100_000_000,
            ..AgentLimits::default()
        },
        ..agent("reader")
    };
    fleet.apply(&reader, &DefinitionSpec::new("reading", "reader")).await;
    let tool = TestTool::new("page", ToolEffect::ReadOnly, |number, _, _| Ok(page(number).into()));
    let worker = fleet.worker_with(|builder| builder.tool(tool.clone()).unwrap());
    let id = fleet.submit("reading", json!({})).await;
    let row = eventually("300 turns end", Duration::from_secs(240), || async {
        let row = fleet.row(id).await;
        if row["finished_at"].is_null() { Err(row["turns"].to_string()) } else { Ok(row) }
    })
    .await;
    assert_eq!((row["status"].as_str(), &row["output"]), (Some("FINISHED"), &json!({"turns": TURNS + 1})), "{row}");
    assert_eq!(tool.count(), TURNS as usize);

    // By thirds of the turns: bytes of steps, of the messages that they append, and of events.
    let rows = sqlx::query(
        "with written as (
             select seq, octet_length(body) + coalesce(octet_length(preview), 0) as bytes
             from steps where execution_id = $1
             union all
             select s.seq, octet_length(m.bytes) from steps s cross join unnest(s.appends) as m (bytes)
             where s.execution_id = $1
             union all
             select seq, octet_length(coalesce(data, '{}')::text) from events where execution_id = $1
         )
         select (seq - 1) * 3 / (select max(seq) from steps where execution_id = $1) as third, \
         sum(bytes)::bigint as bytes
         from written group by 1 order by 1 limit 3",
    )
    .bind(id.0)
    .fetch_all(&fleet.db.pool)
    .await
    .unwrap();
    let thirds: Vec<i64> = rows.iter().map(|row| row.get("bytes")).collect();
    let [first, _, last] = thirds[..] else { panic!("{thirds:?}") };
    assert!(last * 20 < first * 21, "the last third of the turns wrote more than the first: {thirds:?}");
    let results = i64::from(TURNS) * RESULT_BYTES as i64;
    assert!(thirds.iter().sum::<i64>() < results * 5 / 4, "{thirds:?} for {results} bytes of results");
    worker.drain().await;
}
