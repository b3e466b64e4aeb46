//! Files from the upload to the model, and from a tool to the download, over an API and workers on one database.

mod artifacts;
mod objects;
mod requests;

use longhaul_api::ApiOptions;
use longhaul_domain::ExecutionId;
use longhaul_sdk::{
    AgentSpec, JsonSchema, Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, async_trait,
    spec::{FileInput, ModelSpec, ToolRef},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{
    api::TestApi,
    fleet::{Fleet, agent},
};

pub(crate) const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0";
const PNG_BASE64: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAA=";
const PDF: &[u8] = b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n";
const PDF_BASE64: &str = "JVBERi0xLjcKMSAwIG9iago8PD4+CmVuZG9iago=";

/// An API and a fleet over one database, with the agents `sees` (images and PDF) and `blind`.
struct Service {
    fleet: Fleet,
    api: TestApi,
}

impl Service {
    async fn start() -> Self {
        Self::of(Fleet::start().await).await
    }

    async fn of(fleet: Fleet) -> Self {
        let accepts = vec![FileInput::Images, FileInput::Pdf];
        fleet.store.put_shared_agent(&drawing("sees", accepts)).await.unwrap();
        fleet.store.put_shared_agent(&drawing("blind", Vec::new())).await.unwrap();
        let api = TestApi::over(&fleet, ApiOptions::default()).await;
        Self { fleet, api }
    }

    /// Submits parts of one message to an agent.
    async fn ask(&self, agent: &str, parts: Value) -> ExecutionId {
        let input = json!({"messages": [{"role": "user", "content": parts}]});
        let answer = self.api.acme.post("/v1/executions", &json!({"agent": agent, "input": input})).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body["id"].as_str().unwrap().parse().unwrap()
    }
}

pub(crate) fn drawing(key: &str, accepts: Vec<FileInput>) -> AgentSpec {
    let model = ModelSpec { accepts, ..ModelSpec::default() };
    AgentSpec { model, tools: vec![ToolRef::Name("draw".into())], ..agent(key) }
}

/// Leaves a picture, a page and the note that it is given.
pub(crate) struct Draw;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Note {
    #[serde(default)]
    note: String,
}

#[async_trait]
impl Tool for Draw {
    type Args = Note;

    fn name(&self) -> &str {
        "draw"
    }

    fn description(&self) -> &str {
        "Draws."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    async fn call(&self, args: Note, _: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::from("drawn")
            .with_file("../plot.png", "image/png", PNG)
            .with_file("page.html", "text/html", "<script></script>")
            .with_file("plot.png", "text/plain", args.note.into_bytes()))
    }
}
