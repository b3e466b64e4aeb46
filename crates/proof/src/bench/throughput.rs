//! Executions per second through the whole path: HTTP submit, claim, turns and tool calls, conclusion.

use std::sync::Arc;

use longhaul_command::{Context, Exit, output};
use serde_json::{Value, json};

use super::{
    bare_commits::Floor,
    conditions::conditions,
    costs::{Costs, Meter},
    environment::{Bare, EnvironmentOptions},
    load::Load,
    model::{Answers, MCP_TOOL, TOOL},
};

/// Unmeasured executions that warm up connections, caches and plans.
const WARM_UP: usize = 1_000;

#[derive(Debug, clap::Args)]
pub(super) struct ThroughputArgs {
    /// Number of measured executions
    #[arg(long, default_value_t = 30_000)]
    executions: usize,
    /// Rounds of one tool call each before the answer
    #[arg(long, default_value_t = 0)]
    rounds: usize,
    /// Then measure on new servers with the tool over MCP (streamable HTTP) instead of in the worker
    #[arg(long, requires = "rounds")]
    mcp: bool,
    /// Answer each execution first with a 429 and two texts that the validator corrects
    #[arg(long)]
    setbacks: bool,
    /// Number of finished executions in the database before the measurement
    #[arg(long, default_value_t = 0)]
    stored: i32,
    #[command(flatten)]
    load: Load,
    /// Largest number of executions the worker holds
    #[arg(long, default_value_t = 1_000)]
    concurrency: usize,
    /// Executions of each floor measurement
    #[arg(long, default_value_t = 6_000)]
    floor_executions: u32,
}

/// The result of one environment.
struct Measured {
    rate: f64,
    model_calls: u64,
    costs: Costs,
}

pub(super) async fn run(args: ThroughputArgs, context: &Context) -> anyhow::Result<Exit> {
    let bare = Bare::start().await?;
    let conditions = conditions(&bare.options).await?;
    let floor = Floor::measure(&bare.options, args.floor_executions).await?;
    let native = measure(bare, &args, TOOL).await?;
    let mcp = if args.mcp { Some(measure(Bare::start().await?, &args, MCP_TOOL).await?) } else { None };

    if context.json {
        let mut result = native.json(&args, &floor);
        (result["conditions"], result["floor"]) = (json!(conditions), floor.json());
        if let Some(mcp) = mcp {
            result["mcp"] = mcp.json(&args, &floor);
        }
        output::json(&result);
        return Ok(Exit::Done);
    }
    floor.lines().iter().for_each(output::line);
    native.print(&format!("{} tool rounds", args.rounds), &floor);
    if let Some(mcp) = mcp {
        mcp.print(&format!("{} over MCP", args.rounds), &floor);
    }
    Ok(Exit::Done)
}

async fn measure(bare: Bare, args: &ThroughputArgs, tool: &'static str) -> anyhow::Result<Measured> {
    let answers = Answers { rounds: args.rounds, tool, setbacks: args.setbacks, ..Answers::default() };
    let options = EnvironmentOptions {
        concurrency: args.concurrency,
        answers,
        stored: args.stored,
        ..EnvironmentOptions::default()
    };
    let environment = Arc::new(bare.start_environment(options).await?);
    args.load.drive(&environment, WARM_UP).await?;
    let meter = Meter::read(&environment).await?;
    let took = args.load.drive(&environment, args.executions).await?.took;
    let costs = meter.since(&environment, args.executions).await?;
    let model_calls = environment.model.requests();
    if let Some(environment) = Arc::into_inner(environment) {
        environment.stop().await?;
    }
    Ok(Measured { rate: args.executions as f64 / took.as_secs_f64(), model_calls, costs })
}

impl Measured {
    fn json(&self, args: &ThroughputArgs, floor: &Floor) -> Value {
        self.costs.add_to(json!({
            "executions": args.executions, "tool_rounds": args.rounds, "setbacks": args.setbacks,
            "stored_before": args.stored,
            "executions_per_second": self.rate, "ratio_to_floor": self.rate / floor.per_second(),
            "turns_per_second": self.rate * (args.rounds + 1) as f64, "model_calls": self.model_calls,
        }))
    }

    fn print(&self, rounds: &str, floor: &Floor) {
        output::line(format!("executions, submit to FINISHED, {rounds}:{:>21.0}/s", self.rate));
        output::line(format!("ratio to the floor: {:.2}", self.rate / floor.per_second()));
        self.costs.lines().iter().for_each(output::line);
    }
}
