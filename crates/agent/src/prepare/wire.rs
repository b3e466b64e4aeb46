//! Runs that came over a wire of other clients: an agent with a request's conversation, or one model call.

use longhaul_domain::{
    RetryPolicy,
    wire_run::{WireChoice, WireRun},
};
use longhaul_llm::{Message, ToolChoice};
use longhaul_sdk::{
    AgentConfigProvider, ConfigType, Failure, ToolSpec,
    spec::{AgentOverrides, CallerToolSpec},
};
use longhaul_store::catalogue::definitions::PinnedVersions;
use longhaul_tools::Toolbox;
use serde_json::Value;

use super::{
    differences::Differences,
    profile::Profile,
    tool_list::{Task, ToolList},
};
use crate::{Agent, calls::policy::Policy, deps::AgentDeps};

/// An agent's run that came over a wire.
#[derive(Debug)]
pub(super) struct OverWire(pub(super) WireRun);

impl Profile for OverWire {
    /// The instructions of the agent and of the request, then the request's messages. `None` without messages: the
    /// task is that of the definition.
    fn opening(&self, instructions: &str, _references: Option<&str>) -> Option<Vec<Message>> {
        let run = &self.0;
        if run.messages.is_empty() {
            return None;
        }
        let instructions = [Some(instructions), run.instructions.as_deref()].into_iter().flatten();
        Some(instructions.map(Message::system).chain(run.messages.iter().cloned()).collect())
    }

    fn further_instructions(&self) -> Option<&str> {
        self.0.instructions.as_deref()
    }

    fn tool_choice(&self, turn: u32) -> ToolChoice<'_> {
        choice(&self.0, turn)
    }

    fn max_tool_calls(&self) -> Option<u32> {
        self.0.max_tool_calls
    }

    fn records_text(&self) -> bool {
        self.0.is_streamed
    }
}

/// One model call. Longhaul adds nothing to its messages.
#[derive(Debug)]
struct SingleCall(WireRun);

impl Profile for SingleCall {
    fn takes_part(&self) -> bool {
        false
    }

    fn opening(&self, _instructions: &str, _references: Option<&str>) -> Option<Vec<Message>> {
        Some(self.0.messages.clone())
    }

    fn tool_choice(&self, turn: u32) -> ToolChoice<'_> {
        choice(&self.0, turn)
    }

    fn records_text(&self) -> bool {
        self.0.is_streamed
    }

    fn is_single_call(&self) -> bool {
        true
    }
}

/// The choice of a request binds its first turn: a model that had to call a tool in each would never answer.
fn choice(run: &WireRun, turn: u32) -> ToolChoice<'_> {
    match &run.tool_choice {
        WireChoice::None if turn == 1 => ToolChoice::None,
        WireChoice::Required if turn == 1 => ToolChoice::Required,
        WireChoice::Named(name) if turn == 1 => ToolChoice::Named(name),
        WireChoice::Auto | WireChoice::None | WireChoice::Required | WireChoice::Named(_) => ToolChoice::Auto,
    }
}

/// Prepares the model call of a request: its model, and its functions as the request has them, whose calls never run.
///
/// # Errors
/// `invalid_definition` for a model that the worker does not know.
pub fn prepare_call(
    pinned: &PinnedVersions,
    differences: Differences,
    run: WireRun,
    deps: &AgentDeps,
) -> Result<Agent, Failure> {
    let AgentOverrides { model, caller_tools, .. } = differences.overrides;
    let mut config = pinned.agent.config(ConfigType::AgenticExecutionDefinition);
    config.model = model.unwrap_or(config.model);
    // The provider judges the length of the conversation: Longhaul shortens none.
    config.limits.context_tokens = u32::MAX;
    let is_strict = |name: &String| run.strict_tools.contains(name);
    let shown = caller_tools.iter().map(CallerToolSpec::spec);
    let shown = shown.map(|spec| ToolSpec { is_strict: is_strict(&spec.name), ..spec }).collect();
    let task = Task { input: &Value::Null, output_schema: None };
    let tool_list = ToolList::new(&config, &[], task, Some(shown), &deps.tools.schemas)?;
    let routes = deps.health.routes(&deps.models, &config.model).map_err(|error| error.to_failure())?;
    let toolbox = Toolbox::of_services([], config.limits.max_tool_result_bytes as usize, &deps.tools)?;
    Ok(Agent {
        policy: Policy::new(&config.approvals)?,
        config,
        native_output_schema: run.output_schema.clone(),
        profile: Box::new(SingleCall(run)),
        routes,
        toolbox,
        skills: Vec::new(),
        granted: Vec::new(),
        tool_list,
        retry: RetryPolicy::from(&pinned.definition.retry),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run(more: Value) -> WireRun {
        let mut run = json!({ "wire": "chat" });
        run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn tool_choice_binds_the_first_turn() {
        let named = run(json!({ "tool_choice": {"named": "f"} }));
        assert_eq!((choice(&named, 1), choice(&named, 2)), (ToolChoice::Named("f"), ToolChoice::Auto));
        let none = run(json!({ "tool_choice": "none" }));
        assert_eq!((choice(&none, 1), choice(&none, 2)), (ToolChoice::None, ToolChoice::Auto));
        assert_eq!(choice(&run(json!({})), 1), ToolChoice::Auto);
    }

    #[test]
    fn opening_has_both_instructions_before_the_messages() {
        let said = json!([{"role": "user", "parts": ["a"]}, {"role": "system", "text": "s"}]);
        let with = OverWire(run(json!({ "messages": said, "instructions": "i" })));
        let opening = with.opening("agent", None).unwrap();
        let texts: Vec<_> = opening.iter().map(|message| (message.role(), message.text())).collect();
        let expected = [("system", "agent"), ("system", "i"), ("user", "a"), ("system", "s")];
        assert_eq!(texts, expected.map(|(role, text)| (role, text.into())));
        let single = SingleCall(run(json!({ "messages": [{"role": "user", "parts": ["a"]}] })));
        assert_eq!(single.opening("agent", None), Some(vec![Message::user("a")]));
        assert_eq!(OverWire(run(json!({}))).opening("agent", None), None);
    }
}
