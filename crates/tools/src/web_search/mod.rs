//! `web_search`: searches the web through the service that the configuration names.
//!
//! The service's answers are not trusted: they are bounded in bytes, count and time, and addresses are checked as
//! those of `fetch_url`. The key of the service appears in no error and no result.

mod found;
mod http_service;

use std::time::Duration;

use longhaul_config::{WebSearchBackend, WebSearchConfig, reveal};
use longhaul_domain::{cut, requirements::WEB_SEARCH};
use longhaul_sdk::{
    Tool, ToolCallContext, ToolEffect, ToolFailure, ToolOutput, ToolSpec, async_trait, spec::McpServerSpec,
};
use schemars::JsonSchema;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    any_tool::AnyTool,
    mcp::{AllowedNetworks, McpPool, McpServer, McpTool},
};
use http_service::HttpService;

/// Results of a search whose call does not state a count.
const USUAL_COUNT: u32 = 10;
/// Longest query, in characters; the Brave Search API accepts no longer one.
const MAX_QUERY_CHARS: usize = 400;

/// The tool with its service.
pub struct WebSearch {
    service: Service,
    timeout: Duration,
    max_results: u32,
    max_bytes: usize,
}

enum Service {
    Http(HttpService),
    Mcp(McpService),
}

/// A tool of an MCP server, and its arguments.
struct McpService {
    tool: McpTool,
    query_argument: String,
    count_argument: Option<String>,
}

/// Arguments of [`WebSearch`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WebSearchArgs {
    /// What to search for.
    #[schemars(length(min = 1, max = MAX_QUERY_CHARS))]
    pub query: String,
    /// Results wanted; 10 when absent.
    #[schemars(range(min = 1, max = 50))]
    pub count: Option<u32>,
}

impl WebSearch {
    /// The tool with the configured service; `None` if there is none. Connections to an MCP server are those of
    /// `pool`.
    ///
    /// # Errors
    /// The key refers to a variable that is not set, or the HTTP client cannot be built.
    pub fn new(config: &WebSearchConfig, pool: &McpPool) -> Result<Option<Self>, String> {
        let service = match config.backend {
            WebSearchBackend::Off => return Ok(None),
            WebSearchBackend::Brave | WebSearchBackend::Searxng => {
                let key = config.api_key.as_ref().map(reveal).transpose().map_err(|error| error.to_string())?;
                Service::Http(HttpService::new(config, key)?)
            }
            WebSearchBackend::Mcp => Service::Mcp(McpService::new(config, pool)?),
        };
        let (timeout, max_results) = (config.timeout, config.max_results);
        Ok(Some(Self { service, timeout, max_results, max_bytes: config.max_bytes as usize }))
    }
}

#[async_trait]
impl Tool for WebSearch {
    type Args = WebSearchArgs;

    fn name(&self) -> &str {
        WEB_SEARCH
    }

    fn description(&self) -> &str {
        "Searches the web and returns the results that fit best, each with its title, URL and a short text."
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::ReadOnly
    }

    async fn call(&self, args: Self::Args, context: ToolCallContext) -> Result<ToolOutput, ToolFailure> {
        let count = args.count.unwrap_or(USUAL_COUNT).clamp(1, self.max_results);
        let searched = async {
            match &self.service {
                Service::Http(service) => service.search(&args.query, count).await.map_err(ToolFailure::Reported),
                Service::Mcp(service) => {
                    let text = service.search(&args.query, count, context).await?;
                    Ok(cut(&text, self.max_bytes).into_owned())
                }
            }
        };
        let Ok(found) = tokio::time::timeout(self.timeout, searched).await else {
            let seconds = self.timeout.as_secs_f32();
            return Err(format!("the search service did not answer within {seconds} s").into());
        };
        found.map(ToolOutput::from)
    }
}

impl McpService {
    fn new(config: &WebSearchConfig, pool: &McpPool) -> Result<Self, String> {
        let key = config.api_key.iter().map(|key| ("authorization", format!("Bearer {}", key.expose_secret())));
        let headers: Map<String, Value> = key.map(|(name, value)| (name.to_owned(), value.into())).collect();
        let spec: McpServerSpec = serde_json::from_value(json!({ "url": config.url, "headers": headers }))
            .map_err(|error| format!("the MCP server of tools.web_search: {error}"))?;
        let reach = AllowedNetworks { may_be_private: config.allow_private_addresses };
        let server = McpServer::new(pool.clone(), WEB_SEARCH, &spec, reach, config.timeout)?;
        let spec = ToolSpec {
            name: WEB_SEARCH.into(),
            description: String::new(),
            parameters: json!({ "type": "object" }),
            effect: ToolEffect::ReadOnly,
            latent_output: None,
            is_strict: false,
            mended: None,
        };
        Ok(Self {
            tool: server.tool(config.mcp_tool.as_deref().unwrap_or_default(), spec),
            query_argument: config.mcp_query_argument.clone(),
            count_argument: config.mcp_count_argument.clone(),
        })
    }

    /// The text of the tool's result. An unreachable server is an error for the model, not the end of the run.
    async fn search(&self, query: &str, count: u32, context: ToolCallContext) -> Result<String, ToolFailure> {
        let mut arguments = Map::from_iter([(self.query_argument.clone(), Value::from(query))]);
        arguments.extend(self.count_argument.iter().map(|name| (name.clone(), Value::from(count))));
        match self.tool.call(Value::Object(arguments), context).await {
            Ok(output) => Ok(output.text),
            Err(ToolFailure::EndsRun(failure)) => Err(ToolFailure::Reported(failure.summary)),
            Err(failure) => Err(failure),
        }
    }
}
