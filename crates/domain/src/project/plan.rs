//! The plan of a project, and the rules that it must keep.

use std::collections::{BTreeSet, HashMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ExecutionStrategy, named_outputs};
use crate::cut;

/// Most tasks of a plan.
pub const MAX_TASKS: usize = 1_000;
/// Most phases of a plan.
pub const MAX_PHASES: usize = 32;
/// Most dependencies of all tasks together.
const MAX_EDGES: usize = 10_000;
/// Most bytes of a prompt.
const MAX_PROMPT_BYTES: usize = 32 * 1024;
/// Most outputs that a prompt names, one that it names twice counted twice: each is filled in.
const MAX_NAMED_OUTPUTS: usize = 32;
const MAX_TITLE_CHARS: usize = 200;
/// Most automatic repeats of a failed task.
const MAX_RETRIES: u8 = 10;
/// Form of the key of a task.
pub const TASK_KEY: &str = "^[a-z0-9_-]{1,64}$";
/// Most problems that are listed.
const MAX_PROBLEMS: usize = 20;
/// Most bytes of a name in a message.
const MAX_NAME_BYTES: usize = 200;
/// Most keys of a circle that are named.
const MAX_NAMED: usize = 20;

/// Tasks, and the phases in which they run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Phases in order: tasks of a phase start when all tasks of the phases before it have ended. One phase when
    /// absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_PHASES))]
    pub phases: Vec<PlannedPhase>,
    /// Tasks, in the order in which ready ones start.
    #[schemars(length(min = 1, max = MAX_TASKS))]
    pub tasks: Vec<PlannedTask>,
}

/// A phase of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedPhase {
    /// Name, unique in the plan.
    #[schemars(length(min = 1, max = MAX_TITLE_CHARS))]
    pub name: String,
    /// True if the project waits for `POST …/continue` after the phase.
    #[serde(default)]
    pub gate: bool,
    /// Strategy of the phase; the project's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_strategy: Option<ExecutionStrategy>,
}

/// A task of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedTask {
    /// Name that other tasks refer to, unique in the plan.
    #[schemars(regex(pattern = TASK_KEY))]
    pub key: String,
    /// Title for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = MAX_TITLE_CHARS))]
    pub title: String,
    /// The task for the agent. `{{ tasks.KEY.output }}` stands for the output of a task that it depends on, at most 16
    /// KiB of it.
    #[schemars(length(min = 1, max = MAX_PROMPT_BYTES))]
    pub prompt: String,
    /// Agent that carries it out; the project's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Keys of tasks that must complete before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Name of its phase; the first when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Number of times that it is started again when it failed.
    #[serde(default)]
    #[schemars(range(max = MAX_RETRIES))]
    pub retries: u8,
    /// Longest life of its execution, in seconds, waits included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub timeout_seconds: Option<u32>,
}

/// A rule that a plan breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanProblem {
    /// JSON pointer into the plan.
    pub path: String,
    pub message: String,
}

impl PlanProblem {
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// A plan that keeps the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPlan {
    /// At least one phase.
    pub phases: Vec<PlannedPhase>,
    pub tasks: Vec<PlannedTask>,
    /// Position of the phase of each task.
    pub phase_of: Vec<usize>,
}

impl Plan {
    /// Checks the plan against its rules.
    ///
    /// # Errors
    /// The rules that it breaks, at most twenty.
    pub fn check(self, is_agent: impl Fn(&str) -> bool) -> Result<CheckedPlan, Vec<PlanProblem>> {
        let mut problems = self.sizes();
        if problems.is_empty() {
            problems = self.names(is_agent);
        }
        let phases: HashMap<&str, usize> =
            self.phases.iter().enumerate().map(|(place, phase)| (phase.name.as_str(), place)).collect();
        let phase_of: Vec<usize> = self
            .tasks
            .iter()
            .map(|task| task.phase.as_deref().and_then(|name| phases.get(name)).copied().unwrap_or_default())
            .collect();
        if problems.is_empty() {
            problems = Graph::of(&self.tasks).problems(&phase_of);
        }
        if !problems.is_empty() {
            problems.truncate(MAX_PROBLEMS);
            return Err(problems);
        }
        let mut phases = self.phases;
        if phases.is_empty() {
            phases.push(PlannedPhase { name: "1".into(), gate: false, execution_strategy: None });
        }
        Ok(CheckedPlan { phases, tasks: self.tasks, phase_of })
    }

    /// Sizes, which bound all other checks.
    fn sizes(&self) -> Vec<PlanProblem> {
        let mut problems = Vec::new();
        if self.tasks.is_empty() {
            problems.push(PlanProblem::new("/tasks", "has no task"));
        }
        if self.tasks.len() > MAX_TASKS {
            problems.push(PlanProblem::new("/tasks", format!("has more than {MAX_TASKS} tasks")));
        }
        if self.phases.len() > MAX_PHASES {
            problems.push(PlanProblem::new("/phases", format!("has more than {MAX_PHASES} phases")));
        }
        if self.tasks.iter().map(|task| task.depends_on.len()).sum::<usize>() > MAX_EDGES {
            problems.push(PlanProblem::new("/tasks", format!("has more than {MAX_EDGES} dependencies")));
        }
        problems
    }

    fn names(&self, is_agent: impl Fn(&str) -> bool) -> Vec<PlanProblem> {
        let mut problems = Vec::new();
        let mut phases = HashSet::new();
        for (place, phase) in self.phases.iter().enumerate() {
            if phase.name.is_empty() || phase.name.chars().count() > MAX_TITLE_CHARS || phase.name.contains('\0') {
                problems
                    .push(PlanProblem::new(format!("/phases/{place}/name"), "is not a name of 1 to 200 characters"));
            }
            if !phases.insert(phase.name.as_str()) {
                let message = format!("the phase `{}` is there twice", cut(&phase.name, MAX_NAME_BYTES));
                problems.push(PlanProblem::new(format!("/phases/{place}/name"), message));
            }
        }
        let mut keys = HashSet::new();
        for (place, task) in self.tasks.iter().enumerate() {
            let mut wrong = |field: &str, message: String| {
                problems.push(PlanProblem::new(format!("/tasks/{place}/{field}"), message))
            };
            let key = &task.key;
            if !is_key(key) {
                wrong("key", format!("does not match {TASK_KEY}"));
            } else if !keys.insert(key.as_str()) {
                wrong("key", format!("the task `{key}` is there twice"));
            }
            if task.title.chars().count() > MAX_TITLE_CHARS || task.title.contains('\0') {
                wrong(
                    "title",
                    format!("the title of `{key}` is longer than {MAX_TITLE_CHARS} characters or has U+0000"),
                );
            }
            if task.prompt.is_empty() || task.prompt.len() > MAX_PROMPT_BYTES || task.prompt.contains('\0') {
                wrong(
                    "prompt",
                    format!("the prompt of `{key}` is empty, has U+0000 or is above {MAX_PROMPT_BYTES} bytes"),
                );
            }
            if let Some(agent) = task.agent.as_deref().filter(|agent| !is_agent(agent)) {
                let agent = cut(agent, MAX_NAME_BYTES);
                wrong("agent", format!("task `{key}` names the agent `{agent}`, which the project does not have"));
            }
            if let Some(phase) = task.phase.as_deref().filter(|phase| !phases.contains(phase)) {
                let phase = cut(phase, MAX_NAME_BYTES);
                wrong("phase", format!("task `{key}` names the phase `{phase}`, which the plan does not have"));
            }
            if task.retries > MAX_RETRIES {
                wrong("retries", format!("task `{key}` has more than {MAX_RETRIES} retries"));
            }
            if task.timeout_seconds.is_some_and(|seconds| !(1..=2_592_000).contains(&seconds)) {
                wrong("timeout_seconds", format!("the timeout of `{key}` is not 1 second to 30 days"));
            }
        }
        problems
    }
}

fn is_key(key: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    (1..=64).contains(&key.len()) && key.bytes().all(fits)
}

/// Tasks whose keys are known to be unique, with their places.
struct Graph<'a> {
    tasks: &'a [PlannedTask],
    place: HashMap<&'a str, usize>,
}

impl<'a> Graph<'a> {
    fn of(tasks: &'a [PlannedTask]) -> Self {
        let place = tasks.iter().enumerate().map(|(place, task)| (task.key.as_str(), place)).collect();
        Self { tasks, place }
    }

    fn problems(&self, phase_of: &[usize]) -> Vec<PlanProblem> {
        let mut problems = self.unknown(phase_of);
        if problems.is_empty()
            && let Some(circle) = self.circle()
        {
            let named: Vec<String> = circle.iter().take(MAX_NAMED).map(|key| format!("`{key}`")).collect();
            let rest = if circle.len() > MAX_NAMED { " → …" } else { "" };
            let message = format!("tasks depend on each other in a circle: {}{rest}", named.join(" → "));
            problems.push(PlanProblem::new("/tasks", message));
        }
        if problems.is_empty() {
            problems = self.outputs();
        }
        problems
    }

    /// Dependencies on tasks that are not there, are there twice, or come in a later phase.
    fn unknown(&self, phase_of: &[usize]) -> Vec<PlanProblem> {
        let mut problems = Vec::new();
        for (place, task) in self.tasks.iter().enumerate() {
            let mut seen = HashSet::new();
            for on in &task.depends_on {
                let (key, name) = (&task.key, cut(on, MAX_NAME_BYTES));
                let message = match self.place.get(on.as_str()) {
                    None => format!("task `{key}` depends on `{name}`, which the plan does not have"),
                    Some(_) if !seen.insert(on) => format!("task `{key}` depends on `{name}` twice"),
                    Some(&other) if phase_of[other] > phase_of[place] => {
                        format!("task `{key}` depends on `{name}` of a later phase")
                    }
                    Some(_) => continue,
                };
                problems.push(PlanProblem::new(format!("/tasks/{place}/depends_on"), message));
            }
        }
        problems
    }

    /// The keys of a circle, the first once more at its end.
    fn circle(&self) -> Option<Vec<&'a str>> {
        let mut remaining: Vec<usize> = self.tasks.iter().map(|task| task.depends_on.len()).collect();
        let mut dependants: Vec<Vec<usize>> = vec![Vec::new(); self.tasks.len()];
        for (place, task) in self.tasks.iter().enumerate() {
            for on in &task.depends_on {
                dependants[self.place[on.as_str()]].push(place);
            }
        }
        let mut ready: Vec<usize> = (0..remaining.len()).filter(|&place| remaining[place] == 0).collect();
        while let Some(place) = ready.pop() {
            for &dependant in &dependants[place] {
                remaining[dependant] -= 1;
                if remaining[dependant] == 0 {
                    ready.push(dependant);
                }
            }
        }
        // Each task that is left depends on one that is left: following them comes back to one that was seen.
        let mut at = (0..remaining.len()).find(|&place| remaining[place] > 0)?;
        let mut path: Vec<usize> = Vec::new();
        let mut seen = HashSet::new();
        while seen.insert(at) {
            path.push(at);
            let left = |on: &&String| remaining[self.place[on.as_str()]] > 0;
            at = self.tasks[at].depends_on.iter().find(left).map(|on| self.place[on.as_str()])?;
        }
        let begin = path.iter().position(|&place| place == at)?;
        Some(path[begin..].iter().chain([&at]).map(|&place| self.tasks[place].key.as_str()).collect())
    }

    /// Outputs in prompts of tasks that will not have ended.
    fn outputs(&self) -> Vec<PlanProblem> {
        let mut problems = Vec::new();
        // The last task whose search came by, for each task.
        let mut seen_for = vec![usize::MAX; self.tasks.len()];
        for (place, task) in self.tasks.iter().enumerate() {
            let named = named_outputs(&task.prompt);
            let mut wrong = |message: String| {
                problems.push(PlanProblem::new(format!("/tasks/{place}/prompt"), message));
            };
            if named.len() > MAX_NAMED_OUTPUTS {
                wrong(format!("the prompt of `{}` names more than {MAX_NAMED_OUTPUTS} outputs", task.key));
                continue;
            }
            let mut missing: BTreeSet<&str> = named.into_iter().collect();
            let mut stack = vec![place];
            while let Some(at) = stack.pop().filter(|_| !missing.is_empty()) {
                for on in &self.tasks[at].depends_on {
                    missing.remove(on.as_str());
                    let on = self.place[on.as_str()];
                    if std::mem::replace(&mut seen_for[on], place) != place {
                        stack.push(on);
                    }
                }
            }
            if let Some(key) = missing.first() {
                wrong(format!("the prompt of `{}` names the output of `{key}`, on which it does not depend", task.key));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(plan: Value) -> Result<CheckedPlan, Vec<String>> {
        let plan: Plan = serde_json::from_value(plan).unwrap();
        plan.check(|agent| agent == "a").map_err(|problems| {
            problems.into_iter().map(|problem| format!("{} {}", problem.path, problem.message)).collect()
        })
    }

    fn task(key: &str, depends_on: &[&str]) -> Value {
        json!({ "key": key, "prompt": "p", "depends_on": depends_on })
    }

    #[test]
    fn circles_and_unknown_tasks_are_named() {
        let circle = json!({"tasks": [task("x", &["a"]), task("a", &["b"]), task("b", &["c"]), task("c", &["a"])]});
        assert_eq!(
            check(circle).unwrap_err(),
            ["/tasks tasks depend on each other in a circle: `a` → `b` → `c` → `a`"]
        );
        assert!(check(json!({"tasks": [task("a", &["a"])]})).unwrap_err()[0].contains("`a` → `a`"));
        assert_eq!(
            check(json!({"tasks": [task("a", &["nope"])]})).unwrap_err(),
            ["/tasks/0/depends_on task `a` depends on `nope`, which the plan does not have"]
        );
        let twice = json!({"tasks": [task("a", &[]), task("a", &[])]});
        assert_eq!(check(twice).unwrap_err(), ["/tasks/1/key the task `a` is there twice"]);
    }

    #[test]
    fn names_of_agents_and_phases_are_checked() {
        let mut other = task("b", &[]);
        other["agent"] = json!("nope");
        other["phase"] = json!("later");
        assert_eq!(
            check(json!({"tasks": [task("a", &[]), other]})).unwrap_err(),
            [
                "/tasks/1/agent task `b` names the agent `nope`, which the project does not have",
                "/tasks/1/phase task `b` names the phase `later`, which the plan does not have"
            ]
        );
        let (mut first, mut second) = (task("a", &["b"]), task("b", &[]));
        first["phase"] = json!("one");
        second["phase"] = json!("two");
        let plan = json!({"phases": [{"name": "one"}, {"name": "two"}], "tasks": [first, second]});
        assert!(check(plan).unwrap_err()[0].contains("task `a` depends on `b` of a later phase"));
    }

    #[test]
    fn prompt_names_only_outputs_it_depends_on() {
        let mut last = task("c", &["b"]);
        last["prompt"] = json!("{{ tasks.a.output }} and {{tasks.b.output}}");
        let plan = |last: &Value| json!({"tasks": [task("a", &[]), task("b", &["a"]), last, task("d", &[])]});
        let checked = check(plan(&last)).unwrap();
        assert_eq!((checked.phases.len(), checked.phase_of), (1, vec![0; 4]));
        last["prompt"] = json!("{{ tasks.d.output }}");
        assert!(check(plan(&last)).unwrap_err()[0].contains("the output of `d`, on which it does not depend"));
    }

    #[test]
    fn outputs_that_a_prompt_names_are_bounded() {
        let mut last = task("b", &["a"]);
        last["prompt"] = json!("{{tasks.a.output}}".repeat(MAX_NAMED_OUTPUTS));
        check(json!({"tasks": [task("a", &[]), last.clone()]})).unwrap();
        last["prompt"] = json!("{{tasks.a.output}}".repeat(MAX_NAMED_OUTPUTS + 1));
        assert!(check(json!({"tasks": [task("a", &[]), last]})).unwrap_err()[0].contains("more than 32 outputs"));
    }

    #[test]
    fn names_in_messages_are_cut() {
        let long = "x".repeat(100_000);
        let mut wrong = task("a", &[&long]);
        wrong["agent"] = json!(long);
        wrong["phase"] = json!(long);
        for plan in [json!({"tasks": [wrong]}), json!({"tasks": [task("a", &[&long])]})] {
            assert!(check(plan).unwrap_err().iter().all(|problem| problem.len() < 1_000));
        }
    }

    #[test]
    fn plan_at_its_limits_is_checked_quickly() {
        let keys: Vec<String> = (0..MAX_TASKS).map(|number| format!("t{number}")).collect();
        let tasks: Vec<Value> = (0..MAX_TASKS)
            .map(|number| {
                let on: Vec<&str> = keys[number.saturating_sub(10)..number].iter().map(String::as_str).collect();
                let mut task = task(&keys[number], &on);
                if number > 0 {
                    task["prompt"] = json!("{{tasks.t0.output}}");
                }
                task
            })
            .collect();
        let began = std::time::Instant::now();
        assert_eq!(check(json!({ "tasks": tasks })).unwrap().tasks.len(), MAX_TASKS);
        assert!(began.elapsed().as_secs() < 2);
        let more: Vec<Value> = (0..=MAX_TASKS).map(|number| task(&format!("t{number}"), &[])).collect();
        assert_eq!(check(json!({ "tasks": more })).unwrap_err(), ["/tasks has more than 1000 tasks"]);
    }
}
