//! Adds up a list of expenses in euros: a definition with typed input, the tool its agent uses, and the validator
//! that checks the agent's arithmetic.
//!
//! Invariant: an answer is accepted only if it is the sum at the recorded rate.

use std::sync::Arc;

use longhaul_sdk::{
    AgentSpec, DefinitionSpec, ExecutionDefinition, FailureCode, IsValidJson, JsonSchema, Tool, ToolCallContext,
    ToolEffect, ToolFailure, ToolOutput, Validation, Validator, ValidatorResponse, answer, async_trait, spec::ToolRef,
};
use serde::Deserialize;
use serde_json::{Value, json};

const AGENT: &str = "bookkeeper";
const EXCHANGE_RATE: &str = "exchange_rate";
const UNKNOWN_CURRENCY: &str = "UNKNOWN_CURRENCY";
/// Half a cent: euro amounts are rounded to the cent.
const TOLERANCE: f64 = 0.005;

/// The input. The API checks it against the JSON Schema of this type before anything is stored.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(crate = "longhaul_sdk::schemars")]
#[serde(deny_unknown_fields)]
pub struct Expenses {
    /// ISO 4217 code, for instance `USD`.
    pub currency: String,
    /// The expenses.
    pub lines: Vec<Line>,
}

/// One expense.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(crate = "longhaul_sdk::schemars")]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Purpose of the expense.
    pub description: String,
    /// Amount in the currency of the list.
    pub amount: f64,
}

/// The definition `expense-check`.
pub struct ExpenseCheck;

#[async_trait]
impl ExecutionDefinition for ExpenseCheck {
    type Input = Expenses;
    const KEY: &'static str = "expense-check";
    const AGENT_KEY: &'static str = AGENT;
    const NAME: &'static str = "Expense check";
    const DESCRIPTION: Option<&'static str> = Some("Adds up a list of expenses in euros.");
    const MAX_RETRIES: u32 = 2;

    fn validators(&self) -> Vec<Arc<dyn Validator>> {
        vec![Arc::new(IsValidJson), Arc::new(TotalMatches)]
    }

    fn failure_codes(&self) -> Vec<FailureCode> {
        FailureCode::custom(UNKNOWN_CURRENCY).into_iter().collect()
    }

    fn output_schema(&self) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": { "total_eur": { "type": "number" } },
            "required": ["total_eur"],
            "additionalProperties": false,
        }))
    }

    fn prompt(&self) -> Option<String> {
        let prompt = "Add up these expenses in {{ input.currency }} and convert the sum to euros:\n\
            {% for line in input.lines %}- {{ line.description }}: {{ line.amount }}\n{% endfor %}";
        Some(prompt.into())
    }

    fn configure(&self, spec: &mut DefinitionSpec) {
        spec.active_timeout_seconds = 600;
    }
}

/// Returns the value of a currency in euros.
pub struct ExchangeRate;

/// The arguments of [`ExchangeRate`].
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "longhaul_sdk::schemars")]
#[serde(deny_unknown_fields)]
pub struct ExchangeRateArgs {
    /// ISO 4217 code.
    pub currency: String,
}

#[async_trait]
impl Tool for ExchangeRate {
    type Args = ExchangeRateArgs;

    fn name(&self) -> &str {
        EXCHANGE_RATE
    }

    fn description(&self) -> &str {
        "Returns how many euros one unit of a currency is worth."
    }

    /// Repeating the call changes nothing, so a worker that takes over may repeat it.
    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    async fn call(&self, args: ExchangeRateArgs, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let rate = match args.currency.as_str() {
            "EUR" => Some(1.0),
            "USD" => Some(0.9),
            "GBP" => Some(1.2),
            _ => None,
        };
        // The validator reads this value, also after another worker resumed from the journal.
        context.scratchpad.record(EXCHANGE_RATE, json!(rate));
        match rate {
            Some(rate) => Ok(rate.to_string().into()),
            None => Err(ToolFailure::Reported(format!("there is no rate for `{}`", args.currency))),
        }
    }
}

/// Checks the sum against the recorded rate.
pub struct TotalMatches;

#[async_trait]
impl Validator for TotalMatches {
    fn name(&self) -> &str {
        "total_matches"
    }

    async fn validate(&self, validation: Validation<'_>) -> ValidatorResponse {
        let Ok(expenses) = Expenses::deserialize(validation.input) else {
            return ValidatorResponse::stop(Some("the input is no list of expenses".into()), None);
        };
        let rate = match validation.scratchpad.read(EXCHANGE_RATE) {
            Some(Value::Null) => {
                let reason = format!("there is no exchange rate for `{}`", expenses.currency);
                return ValidatorResponse::stop(Some(reason), FailureCode::custom(UNKNOWN_CURRENCY).ok());
            }
            Some(rate) => rate.as_f64().unwrap_or_default(),
            None => return ValidatorResponse::retry("Ask `exchange_rate` for the rate, then answer again."),
        };
        let expected = expenses.lines.iter().map(|line| line.amount).sum::<f64>() * rate;
        let answered = answer::parse(validation.response).ok().and_then(|answer| answer["total_eur"].as_f64());
        match answered {
            Some(total) if (total - expected).abs() < TOLERANCE => ValidatorResponse::success(),
            Some(_) | None => {
                let all: Vec<_> = expenses.lines.iter().map(|line| line.description.as_str()).collect();
                ValidatorResponse::retry(format!(
                    "`total_eur` must be the sum of {} times {rate}. Ask `exchange_rate` again and add up once more.",
                    all.join(", ")
                ))
            }
        }
    }
}

/// The agent `bookkeeper`, on the worker's default model.
pub fn agent() -> AgentSpec {
    let mut agent = AgentSpec::new(AGENT, "You are a bookkeeper.");
    agent.name = "Bookkeeper".into();
    agent.prompts.agentic_execution_definition = Some(
        "You are a bookkeeper. Ask for exchange rates instead of guessing them. Answer with JSON alone: \
         {\"total_eur\": number}."
            .into(),
    );
    agent.tools = vec![ToolRef::Name(EXCHANGE_RATE.into())];
    agent
}
