//! Checks the plan of a project before it is accepted, so that the model can correct a circle or an unknown name.

use longhaul_domain::Plan;
use longhaul_sdk::{Validation, Validator, ValidatorResponse, async_trait};
use longhaul_store::catalogue::definitions::PLAN_DEFINITION;
use serde_json::Value;

/// Refuses a plan that breaks a rule, with all that is wrong. The agents are those of the input.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProjectPlanValidator;

#[async_trait]
impl Validator for ProjectPlanValidator {
    fn name(&self) -> &str {
        PLAN_DEFINITION
    }

    async fn validate(&self, validation: Validation<'_>) -> ValidatorResponse {
        let plan: Plan = match serde_json::from_str(validation.response) {
            Ok(plan) => plan,
            Err(error) => return ValidatorResponse::retry(format!("The answer is not a plan: {error}.")),
        };
        let agents: Vec<&str> =
            validation.input["agents"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match plan.check(|agent| agents.contains(&agent)) {
            Ok(_) => ValidatorResponse::success(),
            Err(problems) => {
                let lines = problems.iter().map(|problem| format!("- {} {}", problem.path, problem.message));
                ValidatorResponse::retry(format!("The plan is not valid:\n{}", lines.collect::<Vec<_>>().join("\n")))
            }
        }
    }
}
