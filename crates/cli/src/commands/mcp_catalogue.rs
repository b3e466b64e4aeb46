//! `longhaul mcp-catalogue`: a small tool server over a product file, for the demo. Speaks MCP on standard input and
//! output.
//!
//! Invariants: the product file is never written; enrichments go to a second file that is replaced atomically.
//! Storing the same enrichment twice changes nothing, so a call repeated after a crash is harmless.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use longhaul_command::Exit;
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
    },
    service::RequestContext,
};
use serde_json::{Map, Value, json};

/// Serve a product file as MCP tools
#[derive(Debug, clap::Args)]
pub struct McpCatalogueArgs {
    /// Products as CSV: a header line, then one product per line; the first column is the key. Never written
    #[arg(long, value_name = "CSV")]
    file: PathBuf,
    /// File for enrichments, as JSON by key
    #[arg(long, value_name = "JSON")]
    scratch: PathBuf,
}

/// Serves until standard input ends.
///
/// # Errors
/// The file cannot be read, or standard input or output fails.
pub async fn run(args: McpCatalogueArgs) -> anyhow::Result<Exit> {
    let text = fs::read_to_string(&args.file).with_context(|| args.file.display().to_string())?;
    let catalogue = Catalogue { products: parse(&text)?, scratch: args.scratch };
    catalogue.serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(Exit::Done)
}

#[derive(Clone)]
struct Catalogue {
    products: BTreeMap<String, Map<String, Value>>,
    scratch: PathBuf,
}

impl ServerHandler for Catalogue {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let answer = match request.name.as_ref() {
            "list_products" => Ok(self.list(&arguments)),
            "get_product" => self.get(&arguments),
            "upsert_product" => self.upsert(&arguments),
            other => return Err(ErrorData::invalid_params(format!("there is no tool `{other}`"), None)),
        };
        Ok(match answer {
            Ok(value) => CallToolResult::success(vec![ContentBlock::text(value.to_string())]).into(),
            Err(why) => CallToolResult::error(vec![ContentBlock::text(why)]).into(),
        })
    }
}

impl Catalogue {
    fn list(&self, arguments: &JsonObject) -> Value {
        let category = arguments.get("category").and_then(Value::as_str);
        let fits = |product: &&Map<String, Value>| {
            category.is_none_or(|category| product.get("category").and_then(Value::as_str) == Some(category))
        };
        let products = self.products.values().filter(fits);
        let shown = |product: &Map<String, Value>| json!({"sku": product["sku"], "name": product["name"]});
        json!({"products": products.map(shown).collect::<Vec<_>>()})
    }

    fn get(&self, arguments: &JsonObject) -> Result<Value, String> {
        let sku = sku(arguments)?;
        let mut product = self.products.get(sku).cloned().ok_or_else(|| format!("there is no product `{sku}`"))?;
        if let Some(enrichment) = read_scratch(&self.scratch)?.remove(sku) {
            product.insert("enrichment".to_owned(), enrichment);
        }
        Ok(product.into())
    }

    fn upsert(&self, arguments: &JsonObject) -> Result<Value, String> {
        let sku = sku(arguments)?;
        if !self.products.contains_key(sku) {
            return Err(format!("there is no product `{sku}`"));
        }
        let mut enrichment = arguments.clone();
        enrichment.remove("sku");
        // Lock the file during read, change and write: each worker starts its own server process.
        let _lock = lock(&self.scratch).map_err(|error| format!("{}: {error}", self.scratch.display()))?;
        let mut all = read_scratch(&self.scratch)?;
        let before = all.insert(sku.to_owned(), enrichment.clone().into());
        let changed = before != Some(Value::Object(enrichment));
        if changed {
            write_scratch(&self.scratch, &all).map_err(|error| format!("the enrichment cannot be kept: {error}"))?;
        }
        Ok(json!({"sku": sku, "changed": changed}))
    }
}

fn sku(arguments: &JsonObject) -> Result<&str, String> {
    arguments.get("sku").and_then(Value::as_str).ok_or_else(|| "`sku` is required".to_owned())
}

fn read_scratch(path: &Path) -> Result<BTreeMap<String, Value>, String> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Locks the scratch file against other processes until the returned file is dropped.
fn lock(scratch: &Path) -> std::io::Result<fs::File> {
    if let Some(dir) = scratch.parent() {
        fs::create_dir_all(dir)?;
    }
    let file = fs::File::create(scratch.with_extension("lock"))?;
    file.lock()?;
    Ok(file)
}

fn write_scratch(path: &Path, all: &BTreeMap<String, Value>) -> std::io::Result<()> {
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, serde_json::to_vec_pretty(all)?)?;
    fs::rename(&unfinished, path)
}

/// Parses CSV: a header line, then one product per line. Fields may be quoted; a quote inside is doubled.
fn parse(text: &str) -> anyhow::Result<BTreeMap<String, Map<String, Value>>> {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let header = fields(lines.next().context("the file is empty")?);
    anyhow::ensure!(header.first().is_some_and(|name| name == "sku"), "the first column must be `sku`");
    let mut products = BTreeMap::new();
    for line in lines {
        let values = fields(line);
        anyhow::ensure!(
            values.len() == header.len(),
            "`{line}` has {} fields, the header {}",
            values.len(),
            header.len()
        );
        let key = values[0].clone();
        products.insert(key, header.iter().cloned().zip(values.into_iter().map(Value::from)).collect());
    }
    Ok(products)
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => field.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

fn tools() -> Vec<Tool> {
    let sku = json!({"type": "string", "description": "The product's key"});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    vec![
        tool(
            "list_products",
            "The products of the catalogue, or of one category: key and name",
            json!({"type": "object", "properties": {"category": {"type": "string"}}, "additionalProperties": false}),
        )
        .with_annotations(ToolAnnotations::new().read_only(true)),
        tool(
            "get_product",
            "Everything known about one product",
            json!({"type": "object", "properties": {"sku": sku}, "required": ["sku"], "additionalProperties": false}),
        )
        .with_annotations(ToolAnnotations::new().read_only(true)),
        tool(
            "upsert_product",
            "Keeps a title, a description and tags for one product; the same again changes nothing",
            json!({
                "type": "object",
                "properties": {"sku": sku, "title": {"type": "string"}, "description": {"type": "string"},
                    "tags": texts},
                "required": ["sku", "title", "description", "tags"],
                "additionalProperties": false,
            }),
        )
        .with_annotations(ToolAnnotations::new().idempotent(true)),
    ]
}

fn tool(name: &'static str, description: &'static str, schema: Value) -> Tool {
    let Value::Object(schema) = schema else { return Tool::new(name, description, JsonObject::new()) };
    Tool::new(name, description, schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue(dir: &Path) -> Catalogue {
        let products = parse("sku,name,category\nA1,\"Pot, \"\"big\"\"\",kitchen\nB1,Rake,garden\n").unwrap();
        Catalogue { products, scratch: dir.join("deep/scratch.json") }
    }

    fn arguments(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn products_with_quoted_fields_filter_by_category() {
        let dir = tempfile::tempdir().unwrap();
        let listed = catalogue(dir.path()).list(&arguments(json!({"category": "kitchen"})));
        assert_eq!(listed, json!({"products": [{"sku": "A1", "name": "Pot, \"big\""}]}));
    }

    #[test]
    fn an_enrichment_put_twice_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let catalogue = catalogue(dir.path());
        let put = arguments(json!({"sku": "A1", "title": "T"}));
        assert_eq!(catalogue.upsert(&put).unwrap()["changed"], true);
        assert_eq!(catalogue.upsert(&put).unwrap()["changed"], false);
        assert_eq!(catalogue.get(&put).unwrap()["enrichment"], json!({"title": "T"}));
        assert!(catalogue.upsert(&arguments(json!({"sku": "Z"}))).is_err());
    }
}
