//! Executions per second through everything: HTTP submit, claim, turns and tool calls, conclusion.

use std::sync::Arc;

use serde_json::json;

use super::{
    conditions::conditions,
    costs::Meter,
    floor::Floor,
    load::Load,
    model::Answers,
    stand::{Bare, StandOptions},
};
use crate::{context::Context, exit::Exit, output};

/// Executions not measured: connections, caches and plans warm up.
const WARM_UP: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(super) struct ThroughputArgs {
    /// Executions measured
    #[arg(long, default_value_t = 30_000)]
    executions: usize,
    /// Rounds of one tool call each before the answer
    #[arg(long, default_value_t = 0)]
    rounds: usize,
    /// Finished executions that are in the database before
    #[arg(long, default_value_t = 0)]
    stored: i32,
    #[command(flatten)]
    load: Load,
    /// Executions the worker holds at most
    #[arg(long, default_value_t = 1_000)]
    concurrency: usize,
    /// Executions of each floor measurement
    #[arg(long, default_value_t = 6_000)]
    floor_executions: u32,
}

pub(super) async fn run(args: ThroughputArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, args.floor_executions).await?;

    let answers = Answers { rounds: args.rounds, ..Answers::default() };
    let options =
        StandOptions { concurrency: args.concurrency, answers, stored: args.stored, ..StandOptions::default() };
    let stand = Arc::new(bare.stand(options).await?);
    args.load.drive(&stand, WARM_UP).await?;
    let meter = Meter::read(&stand).await?;
    let took = args.load.drive(&stand, args.executions).await?.took;
    let costs = meter.since(&stand, args.executions).await?;
    let rate = args.executions as f64 / took.as_secs_f64();
    let model_calls = stand.model.requests();
    if let Some(stand) = Arc::into_inner(stand) {
        stand.stop().await?;
    }

    let ratio = rate / floor.per_second();
    if context.json {
        output::json(&costs.add_to(json!({
            "conditions": conditions, "floor": floor.json(), "executions": args.executions, "tool_rounds": args.rounds,
            "stored_before": args.stored, "executions_per_second": rate, "ratio_to_floor": ratio,
            "turns_per_second": rate * (args.rounds + 1) as f64, "model_calls": model_calls,
        })));
        return Ok(Exit::Done);
    }
    floor.lines().iter().for_each(output::line);
    output::line(format!("executions, submit to FINISHED, {} tool rounds:{:>21.0}/s", args.rounds, rate));
    output::line(format!("ratio to the floor: {ratio:.2}"));
    costs.lines().iter().for_each(output::line);
    Ok(Exit::Done)
}
