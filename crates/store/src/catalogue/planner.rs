//! The built-in definition `project_plan`: an agent makes the plan of a project.

use longhaul_domain::project::{MAX_PHASES, MAX_TASKS, TASK_KEY};
use longhaul_sdk::spec::{DefinitionSpec, ValidatorRef};
use serde_json::{Value, json};

use super::{
    definitions::{AGENT_DEFINITION, PLAN_DEFINITION},
    put::Put,
};
use crate::{Store, StoreError};

const PROMPT: &str = "Make a plan of tasks that together reach this goal:\n\n{{ input.goal }}\n\n\
    Each task is carried out by an agent in a conversation of its own, which sees nothing but the prompt of the task: \
    say in the prompt all that it needs. Where a task needs the output of another one, name that one in `depends_on` \
    and write {% raw %}{{ tasks.KEY.output }}{% endraw %} in the prompt, with the other's key for KEY.\n\
    {% if input.execution_strategy == 'parallel' %}\
    All tasks run at the same time: make tasks that do not need each other, and leave `depends_on` empty.\n\
    {% elif input.execution_strategy == 'sequential' %}\
    The tasks run one after another, in the order in which you list them.\n\
    {% else %}\
    Tasks that do not depend on each other run at the same time: let a task depend only on what it needs.\n\
    {% endif %}\
    {% if input.agents | length > 1 %}A task may name one of these agents, otherwise `{{ input.agent }}` carries it \
    out:\n{% for agent in input.agents %}- {{ agent }}\n{% endfor %}{% endif %}\
    Leave `phases` out unless the goal has stages that must end one after another; a phase with `gate` waits for a \
    person after its end. Make as few tasks as the goal needs.";

/// The definition. Its executions carry the agent of their project; its answer is a plan.
#[must_use]
pub fn plan_definition() -> DefinitionSpec {
    DefinitionSpec {
        name: "Project plan".into(),
        description: Some("Makes the plan of a project.".into()),
        input_schema: json!({
            "type": "object",
            "properties": {
                "goal": {"type": "string", "minLength": 1},
                "execution_strategy": {"enum": ["sequential", "parallel", "dag"]},
                "agent": {"type": "string"},
                "agents": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["goal", "execution_strategy", "agent", "agents"],
            "additionalProperties": false,
        }),
        output_schema: Some(plan_schema()),
        prompt: Some(PROMPT.into()),
        validators: vec![ValidatorRef::Name(PLAN_DEFINITION.into())],
        ..DefinitionSpec::new(PLAN_DEFINITION, AGENT_DEFINITION)
    }
}

fn plan_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "phases": {
                "type": "array",
                "maxItems": MAX_PHASES,
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "minLength": 1, "maxLength": 200},
                        "gate": {"type": "boolean"},
                    },
                    "required": ["name"],
                    "additionalProperties": false,
                },
            },
            "tasks": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_TASKS,
                "items": {
                    "type": "object",
                    "properties": {
                        "key": {"type": "string", "pattern": TASK_KEY},
                        "title": {"type": "string", "maxLength": 200},
                        "prompt": {"type": "string", "minLength": 1},
                        "agent": {"type": "string"},
                        "depends_on": {"type": "array", "items": {"type": "string"}},
                        "phase": {"type": "string"},
                    },
                    "required": ["key", "prompt"],
                    "additionalProperties": false,
                },
            },
        },
        "required": ["tasks"],
        "additionalProperties": false,
    })
}

impl Store {
    /// Publishes the built-in definition of this build; the same content makes no new version.
    ///
    /// # Errors
    /// Postgres is unavailable.
    pub async fn put_plan_definition(&self) -> Result<Put, StoreError> {
        self.put_definition(None, &plan_definition()).await
    }
}
