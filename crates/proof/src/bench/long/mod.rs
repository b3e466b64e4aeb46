//! One long execution: late turns compared with early ones, the time to resume it after a kill, and the time to read
//! its history.

mod reading;
mod turns;
mod window;

use clap::builder::RangedU64ValueParser;
use longhaul_command::{Context, Exit, output};
use longhaul_sdk::{
    AgentSpec, DefinitionSpec,
    spec::{AgentLimits, ToolRef},
};
use serde_json::{Value, json};

use self::{
    reading::Reading,
    turns::{Plan, Resumed},
    window::{Costs, Window},
};
use super::{
    bare_commits::Floor,
    conditions::conditions,
    environment::{Bare, BenchEnvironment, EnvironmentOptions, agent},
    model::PAGE_TOOL,
    page,
};

/// Key of the agent and definition.
const LONG: &str = "bench-long";
/// Executions of each floor measurement.
const FLOOR_EXECUTIONS: u32 = 1_000;
/// Size of a request without pages: prompt and tools.
const PROMPT_BYTES: usize = 700;
/// Growth of a request by a call and its result without the page.
const CALL_BYTES: usize = 211;
/// Smallest page: its number.
const MIN_PAGE_BYTES: usize = 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every turn but the last reads a page of filler, all of one size, so the context grows evenly to --context-kb at the
last turn. Costs are medians over about 20 turns each, from turn 5 on and before the last; the log and the commits are
the server's, so the median also leaves out heartbeats and page images. The time of a turn is from the model's answer
to the next request, which carries the whole context. Before the last turn is answered the worker is killed; resuming
is from the next worker's claim to its request. Then the execution's steps and events are read through the API.")]
pub(super) struct LongArgs {
    /// Turns of the execution
    #[arg(long, default_value_t = 1_000, value_parser = RangedU64ValueParser::<usize>::new().range(30..=10_000))]
    turns: usize,
    /// Size of the model request of the last turn, in kilobytes; at least 0.22 per turn, which the calls need
    #[arg(long, default_value_t = 200, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    context_kb: usize,
}

pub(super) async fn run(args: LongArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, FLOOR_EXECUTIONS).await?;
    let mut environment = bare.start_environment(EnvironmentOptions::default()).await?;
    let plan = Plan { turns: args.turns, page_bytes: page_bytes(&args) };
    apply(&environment, plan).await?;
    let ran = turns::run(&mut environment, plan).await?;
    let stored = environment.store.stored_bytes_by_turn(ran.execution).await?;
    let windows = Window::early_and_late(args.turns);
    let (early, late) = (Costs::of(windows[0], &ran.looks, &stored)?, Costs::of(windows[1], &ran.looks, &stored)?);
    let readings = reading::all(&environment.caller, ran.execution).await?;
    let screen = page::look_at(&environment.caller, &format!("/executions/{}", ran.execution)).await?;
    environment.stop().await?;

    let ratios = late.ratios_to(&early);
    if context.json {
        output::json(&json!({
            "conditions": conditions, "floor": floor.json(), "turns": args.turns, "page_bytes": plan.page_bytes,
            "early": early, "late": late, "late_to_early": ratios, "whole_run": ran.averages, "resumed": ran.resumed,
            "readings": readings.iter().map(Reading::json).collect::<Vec<Value>>(),
            "screen": { "milliseconds": screen.0, "bytes": screen.1 },
        }));
        return Ok(Exit::Done);
    }
    output::line(format!("one execution of {} turns, pages of {} bytes", args.turns, plan.page_bytes));
    output::line(early.line());
    output::line(late.line());
    output::line(format!(
        "late to early: {:.2} in log, {:.2} in commits, {:.2} in stored bytes, {:.2} in time",
        ratios.wal_bytes, ratios.commits, ratios.stored_bytes, ratios.milliseconds
    ));
    output::line(ran.averages.line());
    let Resumed { after_claim_seconds, after_kill_seconds } = ran.resumed;
    output::line(format!(
        "resumed {after_claim_seconds:.2} s after the next claim, {after_kill_seconds:.2} s after the kill"
    ));
    readings.iter().map(Reading::line).for_each(output::line);
    output::line(format!("the page shows it after {:.0} ms, in {} kB", screen.0, screen.1 / 1_000));
    floor.lines().iter().for_each(output::line);
    Ok(Exit::Done)
}

/// Size of each page, so that the last request has the wanted size.
fn page_bytes(args: &LongArgs) -> usize {
    let pages = (args.context_kb * 1_000).saturating_sub(PROMPT_BYTES) / (args.turns - 1);
    pages.saturating_sub(CALL_BYTES).max(MIN_PAGE_BYTES)
}

async fn apply(environment: &BenchEnvironment, plan: Plan) -> anyhow::Result<()> {
    let limits = AgentLimits {
        max_turns: u32::try_from(plan.turns)?,
        max_tool_result_bytes: u32::try_from(plan.page_bytes)?.max(AgentLimits::default().max_tool_result_bytes),
        // Without compression.
        context_tokens: 100_000_000,
        ..AgentLimits::default()
    };
    let long = AgentSpec { tools: vec![ToolRef::Name(PAGE_TOOL.into())], limits, ..agent(LONG) };
    environment.store.put_shared_agent(&long).await?;
    environment.store.put_shared_definition(&DefinitionSpec::new(LONG, LONG)).await?;
    Ok(())
}
