//! `longhaul project`: plans of tasks that depend on each other.

use longhaul_command::{Context, Exit, output};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{client::Client, json_input::json_input};

/// Create, watch and steer projects
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  longhaul project create 'A report on heat pumps' --agent researcher --approval
  longhaul project create 'A report' --agent researcher --plan @plan.json --strategy sequential
  longhaul project tasks proj_019a2c3e…
  longhaul project approve proj_019a2c3e…
  longhaul project retry proj_019a2c3e… compare-prices")]
pub struct ProjectArgs {
    #[command(subcommand)]
    command: ProjectCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ProjectCommand {
    /// Create a project; its agent makes the plan unless a file gives one
    Create(CreateArgs),
    /// List projects, newest first
    List {
        /// Filter by status, such as `in_progress`
        #[arg(long)]
        status: Option<String>,
        /// Projects to list, 1 to 200
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Show a project
    Show {
        /// Id of the project
        id: String,
    },
    /// Approve the plan of a project that waits for it
    Approve {
        /// Id of the project
        id: String,
        /// Number of the plan that was read; another one in its place stays unapproved
        #[arg(long = "plan", value_name = "NUMBER")]
        plan_version: Option<i32>,
    },
    /// Start no more tasks until the project is resumed
    Pause {
        /// Id of the project
        id: String,
    },
    /// Go on with a paused project
    Resume {
        /// Id of the project
        id: String,
    },
    /// Go on with the next phase, after a gate
    Continue {
        /// Id of the project
        id: String,
    },
    /// Start no more tasks, for good
    Cancel {
        /// Id of the project
        id: String,
        /// Cancel running tasks too; otherwise they finish
        #[arg(long)]
        running: bool,
    },
    /// List the tasks of a project
    Tasks {
        /// Id of the project
        id: String,
    },
    /// Start a failed task again, with the tasks that wait for it
    Retry {
        /// Id of the project
        id: String,
        /// Key of the task
        task: String,
    },
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// Goal of the project
    goal: String,
    /// Agent that makes the plan and carries out tasks
    #[arg(long)]
    agent: String,
    /// Further agent that tasks may name; may be repeated
    #[arg(long = "also", value_name = "AGENT")]
    agents: Vec<String>,
    /// Name for people
    #[arg(long)]
    name: Option<String>,
    /// `sequential`, `parallel` or `dag`
    #[arg(long, default_value = "dag")]
    strategy: String,
    /// Most tasks that run at a time under `dag`
    #[arg(long)]
    max_parallel: Option<u16>,
    /// Plan as JSON, as `@FILE`, or as `-` for standard input
    #[arg(long, value_name = "JSON")]
    plan: Option<String>,
    /// Wait for `longhaul project approve` before the first task
    #[arg(long)]
    approval: bool,
    /// Longest life of the project, in seconds
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<u32>,
}

impl CreateArgs {
    fn body(&self) -> anyhow::Result<Value> {
        let plan = self.plan.as_ref().map(|from| json_input("--plan", from));
        Ok(json!({
            "goal": self.goal,
            "agent": self.agent,
            "agents": self.agents,
            "name": self.name,
            "execution_strategy": self.strategy,
            "max_parallel_tasks": self.max_parallel.unwrap_or(8),
            "plan": plan.transpose()?,
            "needs_approval": self.approval,
            "deadline_seconds": self.deadline,
        }))
    }
}

/// # Errors
/// The project does not exist or refuses the change, or the API is unreachable.
pub async fn run(args: ProjectArgs, context: &Context) -> anyhow::Result<Exit> {
    let client = Client::new(&context.load_for_client()?)?;
    let post = |id: &str, verb: &str, body: Value| {
        client.send(client.request(Method::POST, &format!("{}/{verb}", path(id))).json(&body))
    };
    let project = match args.command {
        ProjectCommand::List { status, limit } => return list(&client, context, status.as_deref(), limit).await,
        ProjectCommand::Tasks { id } => return tasks(&client, context, &id).await,
        ProjectCommand::Retry { id, task } => {
            let answer = post(&id, &format!("tasks/{}/retry", plain(&task)), json!({})).await?.body;
            show(context, &answer, |task| vec![task_line(task)]);
            return Ok(Exit::Done);
        }
        ProjectCommand::Create(args) => {
            client.send(client.request(Method::POST, "/v1/projects").json(&args.body()?)).await?.body
        }
        ProjectCommand::Show { id } => client.get(&path(&id)).await?,
        ProjectCommand::Approve { id, plan_version } => {
            post(&id, "approve", json!({ "version": plan_version })).await?.body
        }
        ProjectCommand::Pause { id } => post(&id, "pause", json!({})).await?.body,
        ProjectCommand::Resume { id } => post(&id, "resume", json!({})).await?.body,
        ProjectCommand::Continue { id } => post(&id, "continue", json!({})).await?.body,
        ProjectCommand::Cancel { id, running } => {
            let running = if running { "cancel" } else { "finish" };
            post(&id, "cancel", json!({ "running_tasks": running })).await?.body
        }
    };
    show(context, &project, lines);
    Ok(Exit::Done)
}

fn show(context: &Context, of: &Value, lines: impl Fn(&Value) -> Vec<String>) {
    if context.json {
        output::json(of);
    } else {
        lines(of).into_iter().for_each(output::line);
    }
}

fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect()
}

fn path(id: &str) -> String {
    format!("/v1/projects/{}", plain(id))
}

async fn list(client: &Client, context: &Context, status: Option<&str>, limit: u32) -> anyhow::Result<Exit> {
    let mut request = client.request(Method::GET, "/v1/projects").query(&[("limit", limit)]);
    if let Some(status) = status {
        request = request.query(&[("status", status)]);
    }
    let page = client.send(request).await?.body;
    if context.json {
        output::json(&page);
        return Ok(Exit::Done);
    }
    let mut table = output::table(["ID", "STATUS", "TASKS", "COMPLETED", "FAILED", "CREATED", "NAME"]);
    for project in page["projects"].as_array().into_iter().flatten() {
        let number = |status: &str| project["tasks"][status].as_i64().unwrap_or_default();
        let all: i64 = project["tasks"].as_object().into_iter().flatten().filter_map(|(_, n)| n.as_i64()).sum();
        table.add_row([
            text(project, "id").to_owned(),
            text(project, "status").to_owned(),
            all.to_string(),
            number("completed").to_string(),
            number("failed").to_string(),
            text(project, "created_at").chars().take(19).collect(),
            text(project, "name").to_owned(),
        ]);
    }
    output::line(table.trim_fmt());
    Ok(Exit::Done)
}

async fn tasks(client: &Client, context: &Context, id: &str) -> anyhow::Result<Exit> {
    let found = client.get(&format!("{}/tasks?limit=1000", path(id))).await?;
    if context.json {
        output::json(&found);
        return Ok(Exit::Done);
    }
    for task in found["tasks"].as_array().into_iter().flatten() {
        output::line(task_line(task));
    }
    Ok(Exit::Done)
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or("-")
}

fn task_line(task: &Value) -> String {
    let on: Vec<&str> = task["depends_on"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let on = if on.is_empty() { String::new() } else { format!("  after {}", on.join(", ")) };
    let code = task["failure_code"].as_str().map_or_else(String::new, |code| format!("  ({code})"));
    format!("{:<9}  {:<24}  {}{code}{on}", text(task, "status"), text(task, "key"), text(task, "execution_id"))
}

/// Formats a project for a terminal.
fn lines(project: &Value) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", text(project, "id"), text(project, "status"))];
    let mut say = |label: &str, what: String| lines.push(format!("  {label:<10} {what}"));
    say("name", text(project, "name").into());
    say("agent", format!("{}, {}", text(project, "agent"), text(project, "execution_strategy")));
    if let Some(phase) = project["phase"].as_str() {
        let reason = project["pause_reason"].as_str().map_or_else(String::new, |why| format!(", paused by {why}"));
        say("phase", format!("{phase}{reason}"));
    }
    let number = |(status, n): (&String, &Value)| n.as_i64().filter(|n| *n > 0).map(|n| format!("{n} {status}"));
    let tasks: Vec<String> = project["tasks"].as_object().into_iter().flatten().filter_map(number).collect();
    say("tasks", if tasks.is_empty() { "none".into() } else { tasks.join(", ") });
    if let Some(code) = project["failure_code"].as_str() {
        say("failure", format!("{code}: {}", text(project, "failure_summary")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_is_shown_line_by_line() {
        let project = json!({
            "id": "proj_1", "status": "paused", "pause_reason": "gate", "name": "A report", "agent": "a",
            "execution_strategy": "dag", "phase": "collect", "tasks": {"completed": 3, "pending": 2, "failed": 0},
        });
        assert_eq!(
            lines(&project),
            [
                "proj_1: paused",
                "  name       A report",
                "  agent      a, dag",
                "  phase      collect, paused by gate",
                "  tasks      3 completed, 2 pending",
            ]
        );
        let task = json!({"key": "b", "status": "failed", "execution_id": "019a", "depends_on": ["a"],
            "failure_code": "max_turns_exceeded"});
        assert_eq!(task_line(&task), "failed     b                         019a  (max_turns_exceeded)  after a");
    }
}
