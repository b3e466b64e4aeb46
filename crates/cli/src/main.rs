//! The `longhaul` program: parses the flags, runs one command, returns its exit code.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
#[cfg(feature = "bench")]
use longhaul_cli::commands::bench;
#[cfg(target_os = "linux")]
use longhaul_cli::commands::sandbox;
#[cfg(feature = "proof")]
use longhaul_cli::commands::verify;
use longhaul_cli::{
    argument_errors,
    commands::{
        accounts, api, apply, approvals, audit, cancel, catalogue, chat, compare, completions, config_check, demo, dev,
        doctor, erase, files, fork, get, ingest, keys, ledger, limits, list, mcp_catalogue, migrate, openapi, overview,
        project, providers, prune, quarantine, questions, retry, run as durable_run, runs, schedule, schema, search,
        skills, steps, submit, tool_results, top_up, usage, watch, webhook, whoami, why, with_servers, worker, workers,
    },
    exit,
};
use longhaul_command::{Context, EXIT_CODES, Exit, output, run};
use longhaul_config::Config;

/// Longhaul runs LLM-agent executions to completion.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, propagate_version = true, after_help = EXIT_CODES, after_long_help = help())]
struct Cli {
    #[command(flatten)]
    context: Context,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dev(dev::DevArgs),
    Demo(demo::DemoArgs),
    Api(api::ApiArgs),
    Worker(worker::WorkerArgs),
    Workers(workers::WorkersArgs),
    Overview(overview::OverviewArgs),
    Usage(usage::UsageArgs),
    Whoami(whoami::WhoamiArgs),
    #[cfg(target_os = "linux")]
    Sandbox(sandbox::SandboxArgs),
    Migrate(migrate::MigrateArgs),
    Doctor(doctor::DoctorArgs),
    Prune(prune::PruneArgs),
    Keys(keys::KeysArgs),
    Accounts(accounts::AccountsArgs),
    Audit(audit::AuditArgs),
    Apply(apply::ApplyArgs),
    Schedule(schedule::ScheduleArgs),
    Webhook(webhook::WebhookArgs),
    Skills(skills::SkillsArgs),
    Submit(submit::SubmitArgs),
    Get(get::GetArgs),
    Ingest(ingest::IngestArgs),
    List(list::ListArgs),
    Watch(watch::WatchArgs),
    Run(durable_run::RunArgs),
    Runs(runs::RunsArgs),
    Cancel(cancel::CancelArgs),
    Chat(chat::ChatArgs),
    Definitions(catalogue::DefinitionsArgs),
    Agents(catalogue::AgentsArgs),
    Steps(steps::StepsArgs),
    Search(search::SearchArgs),
    Erase(erase::EraseArgs),
    Retry(retry::RetryArgs),
    Fork(fork::ForkArgs),
    Compare(compare::CompareArgs),
    Ledger(ledger::LedgerArgs),
    Files(files::FilesArgs),
    Artifacts(files::ArtifactsArgs),
    Why(why::WhyArgs),
    Limits(limits::LimitsArgs),
    TopUp(top_up::TopUpArgs),
    Approvals(approvals::ApprovalsArgs),
    Questions(questions::QuestionsArgs),
    ToolResults(tool_results::ToolResultsArgs),
    Project(project::ProjectArgs),
    Providers(providers::ProvidersArgs),
    Quarantine(quarantine::QuarantineArgs),
    Config(config_check::ConfigArgs),
    Openapi(openapi::OpenapiArgs),
    Schema(schema::SchemaArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
    #[cfg(feature = "bench")]
    Bench(bench::BenchArgs),
    #[cfg(feature = "proof")]
    Verify(verify::VerifyArgs),
    #[command(hide = true)]
    WithServers(with_servers::WithServersArgs),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    SandboxWarden(sandbox::WardenArgs),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    SandboxInit(sandbox::InitArgs),
    #[command(hide = true)]
    McpCatalogue(mcp_catalogue::McpCatalogueArgs),
}

fn help() -> String {
    format!(
        "Try it:\n  longhaul dev                              everything here, on private servers\n  \
         longhaul submit mail-triage --input '{{\"mail\": \"…\"}}' --wait\n\n\
         A fleet by hand:\n  longhaul migrate\n  longhaul api --listen 0.0.0.0:8080\n  \
         longhaul worker --concurrency 1000        as many as you like\n  \
         longhaul sandbox                          where agents run code\n  \
         longhaul keys create --name me --org acme\n\n\
         The roles read DATABASE_URL, REDIS_URL and LONGHAUL_API_KEY_PEPPER; the client commands LONGHAUL_URL and\n\
         LONGHAUL_API_KEY, or what `longhaul dev` wrote to .longhaul/env.\n\n{EXIT_CODES}"
    )
}

fn main() -> ExitCode {
    let Cli { context, command } = Cli::try_parse().unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        let arguments: Vec<String> =
            std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
        output::note(argument_errors::told(&error, &arguments).trim_end());
        std::process::exit(Exit::Usage.code().into());
    });
    context.set_colours();
    let exit = dispatch(command, &context).unwrap_or_else(|error| {
        if context.json {
            output::failure_json(&exit::described(&error));
        } else {
            output::failure(&error);
        }
        exit::of_error(&error)
    });
    exit.code().into()
}

#[expect(clippy::too_many_lines, reason = "one line for each command")]
fn dispatch(command: Command, context: &Context) -> anyhow::Result<Exit> {
    match command {
        Command::Dev(args) => {
            let sources = context.sources(Vec::new());
            run::role(Config::load(&sources)?, "longhaul-dev", |_| dev::run(args, sources))
        }
        Command::Demo(args) => {
            // Log warnings only: log lines would hide the demonstration's output.
            let mut sources = context.sources(Vec::new());
            let filter = "LONGHAUL__TELEMETRY__LOG_FILTER".to_owned();
            sources.environment.entry(filter).or_insert_with(|| "warn".to_owned());
            run::role(Config::load(&sources)?, "longhaul-demo", |_| demo::run(args, sources))
        }
        Command::Api(args) => run::role(context.load(args.flags())?, "longhaul-api", api::run),
        Command::Worker(args) => run::role(context.load(args.flags())?, "longhaul-worker", worker::run),
        Command::Workers(args) => run::plain(workers::run(args, context)),
        Command::Overview(args) => run::plain(overview::run(args, context)),
        Command::Usage(args) => run::plain(usage::run(args, context)),
        Command::Whoami(args) => run::plain(whoami::run(args, context)),
        #[cfg(target_os = "linux")]
        Command::Sandbox(args) => run::role(context.load(args.flags())?, "longhaul-sandbox", sandbox::run),
        Command::Doctor(_) => run::plain(doctor::run(context.load_beside_dev()?, context)),
        Command::Migrate(_) => run::plain(migrate::run(context.load(Vec::new())?, context)),
        Command::Prune(args) => run::plain(prune::run(context.load(Vec::new())?, args, context)),
        Command::Keys(args) => run::plain(keys::run(context.load(Vec::new())?, args, context)),
        Command::Accounts(args) => run::plain(accounts::run(args, context)),
        Command::Audit(args) => run::plain(audit::run(args, context)),
        Command::Apply(args) => run::plain(apply::run(args, context)),
        Command::Schedule(args) => run::plain(schedule::run(args, context)),
        Command::Webhook(args) => run::plain(webhook::run(args, context)),
        Command::Skills(args) => run::plain(skills::run(args, context)),
        Command::Submit(args) => run::plain(submit::run(args, context)),
        Command::Get(args) => run::plain(get::run(args, context)),
        Command::Ingest(args) => run::plain(ingest::run(args, context)),
        Command::List(args) => run::plain(list::run(args, context)),
        Command::Watch(args) => run::plain(watch::run(args, context)),
        Command::Run(args) => run::plain(durable_run::run(args, context)),
        Command::Runs(args) => run::plain(runs::run(args, context)),
        Command::Cancel(args) => run::plain(cancel::run(args, context)),
        Command::Chat(args) => run::plain(chat::run(args, context)),
        Command::Definitions(args) => run::plain(catalogue::definitions(args, context)),
        Command::Agents(args) => run::plain(catalogue::agents(args, context)),
        Command::Steps(args) => run::plain(steps::run(args, context)),
        Command::Search(args) => run::plain(search::run(args, context)),
        Command::Erase(args) => run::plain(erase::run(args, context)),
        Command::Retry(args) => run::plain(retry::run(args, context)),
        Command::Fork(args) => run::plain(fork::run(args, context)),
        Command::Compare(args) => run::plain(compare::run(args, context)),
        Command::Files(args) => run::plain(files::run(args, context)),
        Command::Artifacts(args) => run::plain(files::artifacts(args, context)),
        Command::Ledger(args) => run::plain(ledger::run(args, context)),
        Command::Why(args) => run::plain(why::run(args, context)),
        Command::Limits(args) => run::plain(limits::run(args, context)),
        Command::TopUp(args) => run::plain(top_up::run(args, context)),
        Command::Approvals(args) => run::plain(approvals::run(args, context)),
        Command::Project(args) => run::plain(project::run(args, context)),
        Command::Providers(args) => run::plain(providers::run(args, context)),
        Command::Quarantine(args) => run::plain(quarantine::run(args, context)),
        Command::Questions(args) => run::plain(questions::run(args, context)),
        Command::ToolResults(args) => run::plain(tool_results::run(args, context)),
        Command::Config(args) => run::plain(config_check::run(args, context)),
        Command::Openapi(_) => openapi::run(),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => completions::completions(&args, Cli::command()),
        Command::Man(_) => completions::man(Cli::command()),
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::run(args, context),
        #[cfg(feature = "proof")]
        Command::Verify(args) => run::plain(verify::run(args, context)),
        Command::WithServers(args) => run::plain(with_servers::run(&args)),
        #[cfg(target_os = "linux")]
        Command::SandboxWarden(_) => sandbox::hold(),
        #[cfg(target_os = "linux")]
        Command::SandboxInit(args) => sandbox::confine(&args),
        Command::McpCatalogue(args) => run::plain(mcp_catalogue::run(args)),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_has_consistent_flags_and_a_help() {
        let mut cli = Cli::command();
        cli.build();
        cli.clone().debug_assert();
        for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(command.get_about().is_some(), "{} has no help", command.get_name());
        }
    }
}
