//! `/v1/definitions` and `/v1/agents`: versions are put, listed, read and removed.

use longhaul_api::{ApiOptions, ContractOptions};
use longhaul_config::{AllowedAgents, McpConfig};
use longhaul_guards::sealing::Sealer;
use longhaul_store::tenants::api_keys::Scope;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::support::api::{TestApi, agent, invoice};

fn definition(more: Value) -> Value {
    let mut spec = serde_json::to_value(invoice()).unwrap();
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

#[tokio::test]
async fn put_makes_a_version_only_for_changed_content() {
    let api = TestApi::start().await;
    for (path, first, second) in [
        (
            "/v1/definitions/mine",
            definition(json!({"key": "mine"})),
            definition(json!({"key": "mine", "max_retries": 1})),
        ),
        (
            "/v1/agents/me",
            serde_json::to_value(agent("me")).unwrap(),
            json!({"key": "me", "name": "Me", "prompts": {"conversation": "Be brief."}}),
        ),
    ] {
        let put = async |spec: &Value| {
            let answer = api.acme.put(path, spec).await;
            (answer.status, answer.body["version"].as_i64().unwrap_or_else(|| panic!("{}", answer.text)))
        };
        assert_eq!(put(&first).await, (201, 1));
        assert_eq!(put(&first).await, (200, 1));
        assert_eq!(put(&second).await, (201, 2));
        // A return to the old content is a change, too.
        assert_eq!(put(&first).await, (201, 3));
        let newest = api.acme.get(path).await;
        assert_eq!((newest.status, &newest.body["version"], &newest.body["shared"]), (200, &json!(3), &json!(false)));
        let old = api.acme.get(&format!("{path}?version=2")).await;
        assert_eq!(old.body["version"], 2);
        assert_eq!(api.acme.get(&format!("{path}?version=9")).await.error(), (404, "not_found"));
    }
    let stored = api.acme.get("/v1/definitions/mine?version=1").await;
    assert_eq!(stored.body["spec"]["input_schema"], definition(json!({}))["input_schema"]);
    let beta = api.caller("beta", &[Scope::DefinitionsRead]).await;
    assert_eq!(beta.get("/v1/definitions/mine").await.error(), (404, "not_found"), "it is acme's own");
    assert_eq!(beta.get("/v1/definitions/invoice").await.status, 200, "the shared one is everybody's");
}

#[tokio::test]
async fn concurrent_puts_get_versions_without_gaps() {
    let api = TestApi::start().await;
    let puts = (0..8).map(|n| {
        let caller = api.acme.clone();
        async move { caller.put("/v1/definitions/raced", &definition(json!({"key": "raced", "max_retries": n}))).await }
    });
    let answers = futures::future::join_all(puts).await;
    let mut versions: Vec<_> = answers.iter().map(|answer| answer.body["version"].as_i64().unwrap()).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=8).collect::<Vec<_>>());
}

#[tokio::test]
async fn invalid_definitions_and_agents_are_refused() {
    let api = TestApi::start().await;
    let cases: [(&str, Value, &[&str]); 14] = [
        ("invoice", definition(json!({"input_schema": {"type": "no such type"}})), &["/input_schema"]),
        ("invoice", definition(json!({"output_schema": {"$ref": "http://example.com/s"}})), &["/output_schema"]),
        ("invoice", definition(json!({"failure_codes": ["fine", "has space"]})), &["/failure_codes/1"]),
        ("invoice", definition(json!({"agent_key": "nobody"})), &["/agent_key"]),
        ("invoice", definition(json!({"deadline_seconds": 0})), &["/deadline_seconds"]),
        ("invoice", definition(json!({"active_timeout_seconds": 0})), &["/active_timeout_seconds"]),
        ("invoice", definition(json!({"runner": "rust"})), &["/runner"]),
        ("invoice", definition(json!({"budget": {"max_model_calls": 0}})), &["/budget/max_model_calls"]),
        ("other", definition(json!({})), &["/key"]),
        ("Bad", definition(json!({"key": "Bad"})), &["/key"]),
        // Browsers and proxies read such paths as others.
        ("a..b", definition(json!({"key": "a..b"})), &["/key"]),
        ("any", definition(json!({"key": "."})), &["/key"]),
        ("any", definition(json!({"key": ".."})), &["/key"]),
        ("invoice", definition(json!({"max_retires": 2})), &["/max_retires"]),
    ];
    for (key, spec, paths) in cases {
        let answer = api.acme.put(&format!("/v1/definitions/{key}"), &spec).await;
        assert_eq!(
            (answer.error(), answer.paths()),
            ((422, "invalid_request"), paths.to_vec()),
            "{spec}: {}",
            answer.text
        );
    }
    let built_in = api.acme.put("/v1/definitions/agent", &definition(json!({"key": "agent"}))).await;
    assert_eq!(built_in.error(), (409, "key_reserved"));
    let nul = api.acme.put("/v1/definitions/invoice", &definition(json!({"name": "a\0"}))).await;
    assert_eq!((nul.error(), nul.paths()), ((422, "input_contains_nul"), vec!["/name"]));
    let server = json!({"key": "me", "name": "Me", "prompts": {"conversation": ""}, "mcp_servers": {"crm": {}}});
    assert_eq!(api.acme.put("/v1/agents/me", &server).await.paths(), ["/mcp_servers/crm"]);
    let latent =
        |tool: Value| json!({"key": "me", "name": "Me", "prompts": {"conversation": ""}, "latent_tools": [tool]});
    for (tool, path) in [
        (json!({"name": "my tool", "description": ""}), "/latent_tools/0/name"),
        (json!({"name": "submit_output", "description": ""}), "/latent_tools/0/name"),
        (json!({"name": "t", "description": "", "parameters": {"type": "array"}}), "/latent_tools/0/parameters"),
        (json!({"name": "t", "description": "", "output": {"type": "thing"}}), "/latent_tools/0/output"),
    ] {
        assert_eq!(api.acme.put("/v1/agents/me", &latent(tool)).await.paths(), [path]);
    }
    let large = api.acme.put("/v1/definitions/invoice", &definition(json!({"name": "x".repeat(300_000)}))).await;
    assert_eq!(large.error(), (413, "payload_too_large"));
    let rows: i64 =
        sqlx::query_scalar("select count(*) from definition_versions").fetch_one(&api.db.pool).await.unwrap();
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn tool_server_command_needs_an_allowed_owner() {
    let with = |server: Value| {
        json!({"key": "me", "name": "Me", "prompts": {"conversation": ""},
            "mcp_servers": {"crm": server}})
    };
    let (command, url) = (with(json!({"command": ["crm-tools"]})), with(json!({"url": "https://crm.example.com/mcp"})));
    for (stdio_servers, tenants_own, shared) in
        [(AllowedAgents::Any, 201, 201), (AllowedAgents::AppliedOnly, 403, 201), (AllowedAgents::Off, 403, 403)]
    {
        let api = TestApi::start_with(ApiOptions {
            tool_servers: McpConfig { stdio: stdio_servers, ..McpConfig::default() },
            ..ApiOptions::default()
        })
        .await;
        let operator = api.caller("operator", &[Scope::Admin, Scope::DefinitionsWrite]).await;
        let of_tenant = api.acme.put("/v1/agents/me", &command).await;
        let of_all = operator.put("/v1/agents/me?shared=true", &command).await;
        assert_eq!((of_tenant.status, of_all.status), (tenants_own, shared), "{stdio_servers:?}");
        for refused in [of_tenant, of_all].iter().filter(|answer| answer.status == 403) {
            assert_eq!((refused.code(), refused.paths()), ("command_not_allowed", vec!["/mcp_servers/crm/command"]));
        }
        // A server with a public URL needs no permission.
        assert_eq!(api.acme.put("/v1/agents/me", &url).await.status, 201);
    }
    assert_eq!(ApiOptions::default().tool_servers.stdio, AllowedAgents::AppliedOnly);
}

#[tokio::test]
async fn worker_variable_needs_an_allowed_owner() {
    let with = |entry: &str, value: &str| {
        json!({"key": "me", "name": "Me", "prompts": {"conversation": ""},
            "mcp_servers": {"crm": {"url": "https://crm.example.com/mcp", entry: {"x": value}}}})
    };
    let tool_servers = McpConfig { secret_variables: vec!["CRM_TOKEN".into()], ..McpConfig::default() };
    let api = TestApi::start_with(ApiOptions { tool_servers, ..ApiOptions::default() }).await;
    let operator = api.caller("operator", &[Scope::Admin, Scope::DefinitionsWrite]).await;
    for (entry, value) in [
        ("headers", "env://DATABASE_URL"),
        ("headers", "Bearer env://CRM_TOKEN, env://CRM_TOKEN_2"),
        ("env", "env://OPENAI_API_KEY"),
    ] {
        let refused = api.acme.put("/v1/agents/me", &with(entry, value)).await;
        assert_eq!(refused.error(), (403, "variable_not_allowed"), "{value}");
        assert_eq!(refused.paths(), ["/mcp_servers/crm"]);
        assert_eq!(operator.put("/v1/agents/me?shared=true", &with(entry, value)).await.status, 201, "{value}");
    }
    for value in ["Bearer env://CRM_TOKEN", "a fixed text"] {
        assert_eq!(api.acme.put("/v1/agents/me", &with("headers", value)).await.status, 201, "{value}");
    }
}

#[tokio::test]
async fn private_address_needs_an_allowed_owner() {
    let with = |url: &str| {
        json!({"key": "me", "name": "Me", "prompts": {"conversation": ""},
            "mcp_servers": {"crm": {"url": url}}})
    };
    use AllowedAgents::{Any, AppliedOnly, Off};
    for (private_addresses, stdio, tenants_own, shared) in [
        (Any, Off, 201, 201),
        (AppliedOnly, Off, 403, 201),
        (Off, Off, 403, 403),
        // A command can reach every network.
        (Off, AppliedOnly, 403, 201),
        (Off, Any, 201, 201),
    ] {
        let tool_servers = McpConfig { stdio, private_addresses, ..McpConfig::default() };
        let api = TestApi::start_with(ApiOptions { tool_servers, ..ApiOptions::default() }).await;
        let operator = api.caller("operator", &[Scope::Admin, Scope::DefinitionsWrite]).await;
        for url in ["http://169.254.169.254/mcp", "http://[fd00::1]/mcp", "http://2130706433/mcp"] {
            let of_tenant = api.acme.put("/v1/agents/me", &with(url)).await;
            let of_all = operator.put("/v1/agents/me?shared=true", &with(url)).await;
            assert_eq!(
                (of_tenant.status, of_all.status),
                (tenants_own, shared),
                "{private_addresses:?} {stdio:?} {url}"
            );
            for refused in [of_tenant, of_all].iter().filter(|answer| answer.status == 403) {
                assert_eq!((refused.code(), refused.paths()), ("address_not_allowed", vec!["/mcp_servers/crm/url"]));
            }
        }
        assert_eq!(api.acme.put("/v1/agents/me", &with("https://8.8.8.8/mcp")).await.status, 201);
    }
    assert_eq!(ApiOptions::default().tool_servers.private_addresses, AllowedAgents::AppliedOnly);
}

#[tokio::test]
async fn web_search_needs_a_search_service() {
    let agent = json!({"key": "me", "name": "Me", "prompts": {"conversation": ""}, "tools": ["web_search"]});
    let input = json!({"agent": "me", "input": {"prompt": "hi"}});
    let with = TestApi::start_with(ApiOptions { web_search: true, ..ApiOptions::default() }).await;
    assert_eq!(with.acme.put("/v1/agents/me", &agent).await.status, 201);
    assert_eq!(with.acme.post("/v1/executions", &input).await.status, 201);
    let without = TestApi::start().await;
    let refused = without.acme.put("/v1/agents/me", &agent).await;
    assert_eq!(refused.error(), (422, "web_search_not_configured"));
    // Stored without the API, or before the setting changed.
    let spec = serde_json::from_value(agent).unwrap();
    without.store.put_agent(Some(without.tenant), &spec).await.unwrap();
    for (path, body) in [
        ("/v1/executions", input),
        ("/v1/sessions", json!({"agent": "me"})),
        ("/api/chat/me", json!({"message": "hi"})),
    ] {
        let refused = without.acme.post(path, &body).await;
        assert_eq!(refused.error(), (422, "web_search_not_configured"), "{path}");
    }
}

#[tokio::test]
async fn a_tenants_own_key_shadows_the_shared_one() {
    let api = TestApi::start().await;
    let own = definition(json!({"input_schema": {"type": "object", "required": ["page"]}}));
    assert_eq!(api.acme.put("/v1/definitions/invoice", &own).await.status, 201);
    let body = json!({"definition": "invoice", "input": {"text": "x"}});
    assert_eq!(api.acme.post("/v1/executions", &body).await.paths(), ["/input/page"]);
    let beta = api.caller("beta", &[Scope::ExecutionsWrite, Scope::ExecutionsRead]).await;
    assert_eq!(beta.post("/v1/executions", &body).await.status, 201);
    let shared = api.acme.put("/v1/definitions/invoice?shared=true", &own).await;
    assert_eq!(shared.error(), (403, "missing_scope"));
    let admin = api.caller("operator", &[Scope::Admin, Scope::DefinitionsWrite]).await;
    let shared = admin.put("/v1/definitions/invoice?shared=true", &own).await;
    assert_eq!((shared.status, &shared.body["version"], &shared.body["shared"]), (201, &json!(2), &json!(true)));
}

#[tokio::test]
async fn lists_page_through_the_newest_versions() {
    let api = TestApi::start().await;
    for key in ["a", "b", "c"] {
        api.acme.put(&format!("/v1/definitions/{key}"), &definition(json!({"key": key}))).await;
    }
    api.acme.put("/v1/definitions/b", &definition(json!({"key": "b", "max_retries": 9}))).await;
    let read = async |query: &str| {
        let page = api.acme.get(&format!("/v1/definitions{query}")).await;
        let items = page.body["items"].as_array().unwrap().clone();
        let rows: Vec<(String, i64)> = items
            .iter()
            .map(|item| (item["key"].as_str().unwrap().to_owned(), item["version"].as_i64().unwrap()))
            .collect();
        (rows, page.body["next_after"].clone())
    };
    let row = |key: &str, version: i64| (key.to_owned(), version);
    assert_eq!(read("?limit=2").await, (vec![row("a", 1), row("b", 2)], json!("b")));
    assert_eq!(read("?limit=2&after=b").await, (vec![row("c", 1), row("invoice", 1)], json!("invoice")));
    assert_eq!(read("?after=invoice").await, (vec![], Value::Null));
}

#[tokio::test]
async fn a_removed_version_takes_no_new_submits() {
    let api = TestApi::start().await;
    let put = async |more: Value| api.acme.put("/v1/definitions/mine", &definition(more)).await.status;
    assert_eq!(put(json!({"key": "mine"})).await, 201);
    assert_eq!(put(json!({"key": "mine", "max_retries": 1})).await, 201);
    let runs = api.submit_with(json!({"definition": "mine"})).await;
    assert_eq!(api.acme.delete("/v1/definitions/mine/versions/2").await.status, 204);
    assert_eq!(api.acme.delete("/v1/definitions/mine/versions/2").await.error(), (404, "not_found"));
    let submit = async |version: Value| {
        let body = json!({"definition": "mine", "version": version, "input": {"text": "x"}});
        api.acme.post("/v1/executions", &body).await
    };
    assert_eq!(submit(json!(2)).await.error(), (422, "version_removed"));
    let older = submit(Value::Null).await;
    assert_eq!((older.status, &older.body["definition"]["version"]), (201, &json!(1)));
    assert_eq!(api.acme.delete("/v1/definitions/mine/versions/1").await.status, 204);
    assert_eq!(submit(Value::Null).await.error(), (422, "unknown_definition"));
    // A running execution keeps its pinned version.
    let view = api.acme.get(&format!("/v1/executions/{runs}")).await;
    assert_eq!(view.body["definition"], json!({"key": "mine", "version": 2}));
    // A tenant may not remove a shared version.
    assert_eq!(api.acme.delete("/v1/definitions/invoice/versions/1").await.error(), (404, "not_found"));
    assert_eq!(api.acme.delete("/v1/agents/clerk/versions/x").await.error(), (404, "not_found"));
}

#[tokio::test]
async fn length_and_number_of_names_are_bounded() {
    let api = TestApi::start().await;
    let put = async |key: &str, more: Value| {
        let mut spec = json!({"key": key, "name": "Me", "prompts": {"conversation": ""}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        api.acme.put(&format!("/v1/agents/{key}"), &spec).await
    };
    let long = "t".repeat(65);
    for (more, path) in [
        (json!({"tools": ["fine", long]}), "/tools/1"),
        (json!({"tools": ["a+b"]}), "/tools/0"),
        (json!({"tools": vec!["t"; 129]}), "/tools"),
        (json!({"tool_refs": [long]}), "/tool_refs/0"),
        (json!({"mcp_servers": {"a b": {"url": "http://x"}}}), "/mcp_servers"),
        (json!({"concurrency": vec![json!({"key": "tenant", "limit": 1}); 17]}), "/concurrency"),
        (json!({"limits": {"budget": {"max_model_calls": 0}}}), "/limits/budget/max_model_calls"),
    ] {
        let answer = put("me", more.clone()).await;
        assert_eq!((answer.error(), answer.paths()), ((422, "invalid_request"), vec![path]), "{more}");
    }
    for server in ["a__b", "_a", "a_"] {
        let more = json!({"mcp_servers": {server: {"url": "http://x"}}});
        assert_eq!(put("me", more).await.paths(), ["/mcp_servers"], "{server}");
    }
    assert_eq!(put(&"k".repeat(65), json!({})).await.paths(), ["/key"]);
    assert_eq!(put("a..b", json!({})).await.paths(), ["/key"]);
    for (path, body) in [
        ("/v1/indexes/a..b/documents", json!({"documents": [{"id": "a", "text": "x"}]})),
        ("/v1/schedules", json!({"key": "a..b", "agent": "clerk", "input": {}, "interval_seconds": 60})),
    ] {
        assert_eq!(api.acme.post(path, &body).await.status, 422, "{path}");
    }
    let validators = definition(json!({"validators": vec!["is_valid_json"; 33]}));
    assert_eq!(api.acme.put("/v1/definitions/invoice", &validators).await.paths(), ["/validators"]);

    // The largest allowed agent is stored and runs: its names fit into an index entry of Postgres.
    let tools: Vec<String> = (0..128).map(|n| format!("{n:064}")).collect();
    assert_eq!(put("most", json!({ "tools": tools })).await.status, 201);
    let answer = api.acme.post("/v1/executions", &json!({"agent": "most", "input": {"prompt": "x"}})).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
}

/// A schema whose references double at each level.
fn doubling(levels: usize) -> Value {
    let link = |level: usize| json!({"$ref": format!("#/$defs/a{level}")});
    let mut definitions: serde_json::Map<_, _> =
        (0..levels).map(|level| (format!("a{level}"), json!({"allOf": [link(level + 1), link(level + 1)]}))).collect();
    definitions.insert(format!("a{levels}"), json!({}));
    json!({"$defs": definitions, "$ref": "#/$defs/a0"})
}

#[tokio::test]
async fn schemas_that_cost_too_much_are_refused() {
    let api = TestApi::start().await;
    for field in ["input_schema", "output_schema"] {
        let answer = api.acme.put("/v1/definitions/invoice", &definition(json!({ field: doubling(60) }))).await;
        let path = format!("/{field}");
        assert_eq!((answer.error(), answer.paths()), ((422, "invalid_request"), vec![path.as_str()]));
        assert!(answer.text.contains("references repeat"), "{}", answer.text);
    }
    let latent = json!({"name": "t", "description": "", "output": doubling(60)});
    let agent = json!({"key": "me", "name": "Me", "prompts": {"conversation": ""}, "latent_tools": [latent]});
    assert_eq!(api.acme.put("/v1/agents/me", &agent).await.paths(), ["/latent_tools/0/output"]);

    // A schema that is costly only with a large value is accepted; the value is refused.
    let schema =
        json!({"type": "object", "properties": {"list": {"items": {"enum": (0..20_000).collect::<Vec<_>>()}}}});
    let put = api.acme.put("/v1/definitions/invoice", &definition(json!({"input_schema": schema}))).await;
    assert_eq!(put.status, 201, "{}", put.text);
    let submit = json!({"definition": "invoice", "input": {"list": vec![19_999; 100_000]}});
    let answer = api.acme.post("/v1/executions", &submit).await;
    assert_eq!((answer.error(), answer.paths()), ((422, "invalid_input"), vec!["/input"]), "{}", answer.text);
    let small = json!({"definition": "invoice", "input": {"list": [1, 2]}});
    assert_eq!(api.acme.post("/v1/executions", &small).await.status, 201);
}

#[tokio::test]
async fn array_in_place_of_an_object_is_refused() {
    let api = TestApi::start().await;
    let agent = api.acme.put("/v1/agents/arr", &json!(["arr", "arr", null, ["conv"]])).await;
    assert_eq!(agent.error(), (422, "invalid_request"), "{}", agent.text);
    let prompts = json!({"key": "arr", "name": "Arr", "prompts": ["conv"]});
    assert_eq!(api.acme.put("/v1/agents/arr", &prompts).await.paths(), ["/prompts"]);
    let budget = json!({"agent": "helper", "input": {"prompt": "x"}, "budget": [null, null, 5]});
    assert_eq!(api.acme.post("/v1/executions", &budget).await.paths(), ["/budget"]);
    let documents = json!({"documents": [["d2", "text"]]});
    assert_eq!(api.acme.post("/v1/indexes/i/documents", &documents).await.paths(), ["/documents/0"]);
}

#[tokio::test]
async fn literals_of_shared_agents_are_sealed_and_hidden() {
    let sealer = Sealer::new(&[SecretString::from("a key of the tests")]);
    let contract = ContractOptions { sealer, ..ContractOptions::default() };
    let api = TestApi::start_with(ApiOptions { contract, ..ApiOptions::default() }).await;
    let operator = api.caller("operator", Scope::ALL).await;
    let agent = |authorization: &str| {
        let headers = json!({"authorization": authorization, "x-id": "env://ID"});
        let servers = json!({"s": {"url": "https://example.com/mcp", "headers": headers}});
        json!({"key": "shared", "name": "S", "prompts": {"conversation": ""}, "mcp_servers": servers})
    };
    let path = "/v1/agents/shared?shared=true";
    let put = operator.put(path, &agent("Bearer CANARY")).await;
    assert_eq!((put.status, &put.body["version"]), (201, &json!(1)), "{}", put.text);
    let shown = api.acme.get("/v1/agents/shared").await;
    let headers = &shown.body["spec"]["mcp_servers"]["s"]["headers"];
    assert_eq!(headers, &json!({"authorization": "[secret]", "x-id": "env://ID"}));
    let listed = api.acme.get("/v1/agents").await;
    assert!(!put.text.contains("CANARY") && !listed.text.contains("CANARY"));
    let stored: String = sqlx::query_scalar("select string_agg(spec::text, '') from agent_versions")
        .fetch_one(&api.db.pool)
        .await
        .unwrap();
    assert!(!stored.contains("CANARY") && stored.contains("sealed:v1:"));
    for again in ["Bearer CANARY", "[secret]"] {
        let put = operator.put(path, &agent(again)).await;
        assert_eq!((put.status, &put.body["version"]), (200, &json!(1)), "{again}");
    }
    let other = operator.put(path, &agent("Bearer OTHER")).await;
    assert_eq!((other.status, &other.body["version"]), (201, &json!(2)));

    let keyless = TestApi::start().await;
    let refused = keyless.caller("operator", Scope::ALL).await.put(path, &agent("Bearer CANARY")).await;
    assert_eq!(refused.paths(), ["/mcp_servers/s/headers/authorization"], "{}", refused.text);
}
