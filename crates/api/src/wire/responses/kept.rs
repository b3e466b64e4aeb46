//! What is kept of a request for a response, beside its run: the members that its object repeats, and its input.

use longhaul_domain::ExecutionId;
use longhaul_wire::responses::{Create, Header, ResponseId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::refused::Answer;
use crate::error::ApiError;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Name of the model, as sent.
    pub(super) model: String,
    pub(super) echo: Value,
    #[serde(default)]
    pub(super) previous: Option<String>,
    #[serde(default)]
    pub(super) background: bool,
    /// Items of the input, without the bytes of files.
    #[serde(default)]
    pub(super) input: Vec<Value>,
}

impl Kept {
    pub(super) fn of(create: &Create) -> Self {
        Self {
            model: create.asked.model_text.clone(),
            echo: create.echo.clone(),
            previous: create.previous_response_id.clone(),
            background: create.background,
            input: create.input.clone(),
        }
    }

    pub(super) fn to_value(&self) -> Answer<Value> {
        Ok(serde_json::to_value(self).map_err(|_| ApiError::Internal)?)
    }

    /// # Errors
    /// It was not kept for a response.
    pub(super) fn read(value: &Value) -> Answer<Self> {
        Ok(serde_json::from_value(value.clone()).map_err(|_| ApiError::NotFound("response"))?)
    }

    /// The header of the response's object.
    pub(super) fn header(&self, id: &ResponseId, created_at: i64, one_call: bool) -> Header {
        Header {
            id: id.to_string(),
            created_at,
            model: self.model.clone(),
            echo: self.echo.clone(),
            previous_response_id: self.previous.clone(),
            one_call,
            is_background: self.background,
        }
    }
}

/// The id of an answer of a run.
pub(super) fn response_id(execution: ExecutionId, leg: i32) -> Answer<ResponseId> {
    let leg = u32::try_from(leg).unwrap_or_default();
    Ok(ResponseId::new(&execution.to_string(), leg).ok_or(ApiError::Internal)?)
}
