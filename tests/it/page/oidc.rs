//! People who sign in with an OpenID Connect provider: npm's `oidc-provider`, and one that forges tokens.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    process::Stdio,
};

use longhaul_api::ApiOptions;
use longhaul_store::tenants::{accounts::scopes_of, api_keys::Scope};
use reqwest::{Method, Url};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::OnceCell,
};

use super::{Visitor, post_key};
use crate::support::{
    api::{Answer, Caller, TestApi},
    npm,
    wait::{SOON, eventually},
};

const SECRET: &str = "a secret of the client, of 32 bytes";
/// The tests replay the redirect at the API's own address, which the provider cannot know before it starts.
const PUBLIC_URL: &str = "http://127.0.0.1:9";
const CALLBACK: &str = "/login/oidc/callback";

/// A provider in a process of its own.
struct Provider {
    url: String,
    _process: Child,
    /// Open as long as the process runs, which ends when it cannot write.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Provider {
    /// `None` if npm cannot install its packages here.
    async fn start(script: &str) -> Option<Self> {
        static INSTALLED: OnceCell<bool> = OnceCell::const_new();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oidc");
        let is_installed = INSTALLED.get_or_init(async || {
            super::browser::copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc"), &folder);
            npm::installed(&folder).await
        });
        if !*is_installed.await {
            eprintln!("SKIPPED: npm cannot install the packages of tests/oidc here");
            return None;
        }
        let mut process = Command::new("node")
            .args([script, SECRET, &format!("{PUBLIC_URL}{CALLBACK}")])
            .current_dir(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.next_line().await.unwrap().unwrap();
        Some(Self { url, _process: process, _output: lines })
    }

    /// Sends a command of the tests to the provider's script.
    async fn tell(&self, path: &str, body: String) {
        let url = format!("{}{path}", self.url);
        let client = longhaul_guards::http::client(&Default::default()).unwrap();
        assert!(client.post(url).body(body).send().await.unwrap().status().is_success());
    }

    /// The person that signs in next.
    async fn become_person(&self, claims: Value) {
        self.tell("/become", claims.to_string()).await;
    }

    async fn api(&self) -> TestApi {
        let settings = [
            ("LONGHAUL__OIDC__ISSUER", self.url.as_str()),
            ("LONGHAUL__OIDC__CLIENT_ID", "longhaul"),
            ("LONGHAUL__OIDC__CLIENT_SECRET", SECRET),
            ("LONGHAUL__OIDC__PUBLIC_URL", PUBLIC_URL),
            ("LONGHAUL__OIDC__LABEL", "Example"),
            ("LONGHAUL__OIDC__ORG_CLAIM", "org"),
            ("LONGHAUL__OIDC__ROLES__VIEWER", "staff"),
            ("LONGHAUL__OIDC__ROLES__ADMIN", "ops"),
        ];
        let settings: BTreeMap<String, String> =
            settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        TestApi::start_configured(ApiOptions::default(), settings).await
    }
}

/// A browser's cookies for the API and the provider, as far as the sign-in needs them.
struct Browser {
    caller: Caller,
    own: HashMap<String, String>,
}

impl Browser {
    fn new(api: &TestApi) -> Self {
        Self { caller: api.nobody(), own: HashMap::new() }
    }

    /// Begins a sign-in and signs in at the provider. Returns the query of its redirect to the callback.
    async fn redirected(&mut self, next: &str) -> String {
        let begun = self.get(&format!("/login/oidc?next={next}")).await;
        assert_eq!(begun.status, 303, "{}", begun.text);
        let mut jar = HashMap::new();
        let mut url = Url::parse(begun.header("location")).unwrap();
        for _ in 0..8 {
            if url.path() == CALLBACK {
                return url.query().unwrap().to_owned();
            }
            let request = self.caller.client.get(url.clone()).header("cookie", joined(&jar));
            let answer = Answer::read(request.send().await.unwrap()).await;
            keep(&mut jar, &answer);
            assert_eq!(answer.status, 303, "{url}: {}", answer.text);
            url = url.join(answer.header("location")).unwrap();
        }
        panic!("the provider leads to {url}");
    }

    async fn sign_in(&mut self) -> Answer {
        let query = self.redirected("%2Fexecutions%3Fstatus%3DFAILED").await;
        self.get(&format!("{CALLBACK}?{query}")).await
    }

    /// Signs in, and returns the visitor with the cookie of the session.
    async fn visitor(&mut self) -> Visitor {
        let welcome = self.sign_in().await;
        assert_eq!(welcome.status, 200, "{:?}", welcome.headers);
        Visitor { caller: self.caller.clone(), cookie: joined(&self.own) }
    }

    async fn get(&mut self, path: &str) -> Answer {
        let cookies = joined(&self.own);
        let answer = self.caller.send(Method::GET, path, None, &[("cookie", &cookies)]).await;
        keep(&mut self.own, &answer);
        answer
    }
}

fn joined(jar: &HashMap<String, String>) -> String {
    jar.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
}

fn keep(jar: &mut HashMap<String, String>, answer: &Answer) {
    for header in answer.headers.get_all("set-cookie") {
        let pair = header.to_str().unwrap().split(';').next().unwrap();
        let (name, value) = pair.split_once('=').unwrap();
        if value.is_empty() {
            jar.remove(name)
        } else {
            jar.insert(name.into(), value.into())
        };
    }
}

async fn accounts(api: &TestApi) -> i64 {
    sqlx::query_scalar("select count(*) from accounts").fetch_one(&api.db.pool).await.unwrap()
}

fn ada(groups: &[&str]) -> Value {
    json!({ "sub": "ada", "name": "Ada <b>", "email": "ada@example.org", "org": "acme", "groups": groups })
}

const OWN: [(&str, &str); 1] = [("sec-fetch-site", "same-origin")];

#[tokio::test]
async fn person_signs_in_acts_and_signs_out() {
    let Some(provider) = Provider::start("provider.mjs").await else { return };
    let api = provider.api().await;
    assert!(api.nobody().get("/login").await.text.contains("Sign in with Example"));
    provider.become_person(ada(&["ops", "other"])).await;
    let mut browser = Browser::new(&api);
    let welcome = browser.sign_in().await;
    assert!(welcome.text.contains("0;url=&#x2f;executions?status=FAILED"), "{}", welcome.text);
    let cookies: Vec<&str> = welcome.headers.get_all("set-cookie").iter().map(|of| of.to_str().unwrap()).collect();
    assert!(
        cookies.iter().any(|of| of.contains("session=") && of.contains("HttpOnly; SameSite=Strict")),
        "{cookies:?}"
    );
    let ada = Visitor { caller: api.nobody(), cookie: joined(&browser.own) };
    let who = ada.get("/v1/whoami").await.body;
    assert_eq!(
        (&who["kind"], &who["name"], &who["email"]),
        (&json!("person"), &json!("Ada <b>"), &json!("ada@example.org"))
    );
    assert_eq!((&who["roles"], &who["tenant"]["org_id"]), (&json!(["admin"]), &json!("acme")));
    let scopes: Vec<&str> = scopes_of(&[longhaul_domain::Role::Admin], &[]).iter().map(|of| of.as_str()).collect();
    assert_eq!(who["scopes"], json!(scopes));
    let screen = ada.get("/accounts").await.text;
    assert!(screen.contains("Ada &lt;b&gt;") && !screen.contains("Ada <b>"), "{screen}");
    let submit = json!({"definition": "invoice", "input": {"text": "x"}}).to_string();
    let submitted = ada.send(Method::POST, "/v1/executions", Some(submit), &OWN).await;
    assert!(submitted.status < 300, "{}", submitted.text);
    let cancel = format!("/v1/executions/{}/cancel", submitted.body["id"].as_str().unwrap());
    assert_eq!(ada.send(Method::POST, &cancel, Some("{}".into()), &OWN).await.status, 200);
    let log = eventually("both changes are logged", SOON, async || {
        let log = ada.get("/v1/audit").await;
        if log.body["entries"].as_array().unwrap().len() == 2 { Ok(log.body) } else { Err(log.text) }
    });
    for entry in log.await["entries"].as_array().unwrap() {
        assert_eq!((&entry["actor_kind"], &entry["actor_id"]), (&json!("person"), &who["key_id"]), "{entry}");
    }
    assert_eq!(ada.send(Method::POST, "/logout", None, &OWN).await.status, 303);
    assert_eq!(ada.get("/v1/whoami").await.error(), (401, "unauthenticated"));
}

#[tokio::test]
async fn roles_and_names_follow_each_sign_in() {
    let Some(provider) = Provider::start("provider.mjs").await else { return };
    let api = provider.api().await;
    provider.become_person(ada(&["ops"])).await;
    let first = Browser::new(&api).visitor().await;
    let id = first.get("/v1/whoami").await.body["key_id"].clone();
    let mut fewer = ada(&["staff"]);
    fewer["name"] = json!("Ada L.");
    provider.become_person(fewer).await;
    let second = Browser::new(&api).visitor().await;
    for session in [&first, &second] {
        let who = session.get("/v1/whoami").await.body;
        assert_eq!((&who["key_id"], &who["name"], &who["roles"]), (&id, &json!("Ada L."), &json!(["viewer"])));
        let submit = json!({"definition": "invoice", "input": {"text": "x"}}).to_string();
        let refused = session.send(Method::POST, "/v1/executions", Some(submit), &OWN).await;
        assert_eq!(refused.error(), (403, "missing_scope"));
    }
    assert_eq!(accounts(&api).await, 1);
}

#[tokio::test]
async fn disabled_account_is_signed_out_and_refused() {
    let Some(provider) = Provider::start("provider.mjs").await else { return };
    let api = provider.api().await;
    provider.become_person(ada(&["staff"])).await;
    let ada = Browser::new(&api).visitor().await;
    let id = ada.get("/v1/whoami").await.body["key_id"].as_str().unwrap().to_owned();
    let keeper = api.caller("acme", &[Scope::KeysWrite]).await;
    let stranger = api.caller("beta", &[Scope::KeysWrite]).await;
    let [disable, enable] = ["disable", "enable"].map(|verb| format!("/v1/accounts/{id}/{verb}"));
    assert_eq!(stranger.post(&disable, &json!({})).await.error(), (404, "not_found"));
    assert_eq!(stranger.get("/v1/accounts").await.body["accounts"], json!([]));
    assert_eq!(ada.get("/v1/whoami").await.status, 200);
    let disabled = keeper.post(&disable, &json!({})).await;
    assert!(disabled.body["disabled_at"].is_string(), "{}", disabled.text);
    assert_eq!(ada.get("/v1/whoami").await.error(), (401, "unauthenticated"));
    let refused = Browser::new(&api).sign_in().await;
    assert_eq!((refused.status, refused.header("location")), (303, "/login?problem=account_disabled"));
    let enabled = keeper.post(&enable, &json!({})).await;
    assert_eq!((enabled.status, &enabled.body["disabled_at"]), (200, &json!(null)));
    assert_eq!(ada.get("/v1/whoami").await.status, 401, "its sessions have ended for good");
    assert_eq!(Browser::new(&api).visitor().await.get("/v1/whoami").await.status, 200);
}

#[tokio::test]
async fn account_is_no_key() {
    let Some(provider) = Provider::start("provider.mjs").await else { return };
    let api = provider.api().await;
    provider.become_person(ada(&["ops"])).await;
    let ada = Browser::new(&api).visitor().await;
    let id = ada.get("/v1/whoami").await.body["key_id"].as_str().unwrap().to_owned();
    let keeper = api.caller("acme", Scope::ALL).await;
    let keys = keeper.get("/v1/keys").await;
    assert!(!keys.text.contains(&id), "{}", keys.text);
    assert_eq!(keeper.post(&format!("/v1/keys/{id}/rotate"), &json!({})).await.error(), (409, "key_not_active"));
    assert_eq!(keeper.send(Method::DELETE, &format!("/v1/keys/{id}"), None, &[]).await.status, 404);
    assert_eq!(api.store.revoke_api_key(api.tenant, "").await.unwrap(), []);
    assert_eq!(ada.get("/v1/whoami").await.status, 200);
}

#[tokio::test]
async fn person_without_role_or_tenant_stays_outside() {
    let Some(provider) = Provider::start("provider.mjs").await else { return };
    let api = provider.api().await;
    let mut no_org = ada(&["ops"]);
    no_org["org"] = Value::Null;
    let refusals = [(ada(&["other"]), "no_role"), (no_org, "no_tenant"), (json!({ "sub": Value::Null }), "denied")];
    for (claims, problem) in refusals {
        provider.become_person(claims).await;
        let mut browser = Browser::new(&api);
        let refused = browser.sign_in().await;
        assert_eq!((refused.status, refused.header("location")), (303, format!("/login?problem={problem}").as_str()));
        assert!(browser.own.is_empty(), "{:?}", browser.own);
        assert!(api.nobody().get(refused.header("location")).await.text.contains("role=\"alert\""));
    }
    assert_eq!(accounts(&api).await, 0);
}

#[tokio::test]
async fn code_of_another_browser_is_refused() {
    let Some(provider) = Provider::start("provider.mjs").await else { return };
    let api = provider.api().await;
    provider.become_person(ada(&["ops"])).await;
    let mut attacker = Browser::new(&api);
    let query = attacker.redirected("/").await;
    let callback = format!("{CALLBACK}?{query}");
    // The victim's browser follows the attacker's link: without a sign-in of its own, and during one.
    let mut victim = Browser::new(&api);
    assert_eq!(victim.get(&callback).await.header("location"), "/login?problem=sign_in_expired");
    victim.redirected("/").await;
    assert_eq!(victim.get(&callback).await.header("location"), "/login?problem=sign_in_failed");
    assert!(victim.own.is_empty(), "{:?}", victim.own);
    // A cookie that was changed is no sign-in.
    let name = "longhaul_sign_in";
    let held = attacker.own[name].clone();
    let forged = format!("{name}=x{held}");
    let refused = api.nobody().send(Method::GET, &callback, None, &[("cookie", &forged)]).await;
    assert_eq!(refused.header("location"), "/login?problem=sign_in_expired");
    // The right browser is signed in, and a copy of its request is not.
    assert_eq!(attacker.get(&callback).await.status, 200);
    let replayed = api.nobody().send(Method::GET, &callback, None, &[("cookie", &format!("{name}={held}"))]).await;
    assert_eq!(replayed.header("location"), "/login?problem=sign_in_failed");
}

#[tokio::test]
async fn sign_in_replaces_the_session_before() {
    let Some(provider) = Provider::start("provider.mjs").await else { return };
    let api = provider.api().await;
    provider.become_person(ada(&["staff"])).await;
    // An attacker has planted its own session in the victim's browser.
    let planted = Visitor::sign_in(&api, api.acme.key.as_deref().unwrap()).await;
    let mut victim = Browser::new(&api);
    let (name, value) = planted.cookie.split_once('=').unwrap();
    victim.own.insert(name.into(), value.into());
    let ada = victim.visitor().await;
    assert_ne!(ada.cookie, planted.cookie);
    assert_eq!(ada.get("/v1/whoami").await.body["kind"], "person");
    assert_eq!(planted.get("/v1/whoami").await.body["kind"], "key", "it opens nothing of the person's");
}

#[tokio::test]
async fn forged_tokens_are_refused() {
    let Some(provider) = Provider::start("forger.mjs").await else { return };
    let api = provider.api().await;
    let forgeries = [
        "nonce",
        "no nonce",
        "access token",
        "issuer",
        "audience",
        "time",
        "unsigned",
        "algorithm",
        "key",
        "large answer",
    ];
    for forgery in forgeries {
        provider.tell("/forge", forgery.into()).await;
        let mut browser = Browser::new(&api);
        let refused = browser.sign_in().await;
        let problem = if forgery == "large answer" { "provider_unavailable" } else { "sign_in_failed" };
        assert_eq!(refused.header("location"), format!("/login?problem={problem}"), "{forgery}");
        assert!(browser.own.is_empty(), "{forgery}: {:?}", browser.own);
    }
    assert_eq!(accounts(&api).await, 0);
    provider.tell("/forge", "none of them".into()).await;
    assert_eq!(Browser::new(&api).visitor().await.get("/v1/whoami").await.body["name"], "Eve");
}

#[tokio::test]
async fn absent_provider_leaves_the_sign_in_by_key() {
    let Some(provider) = Provider::start("forger.mjs").await else { return };
    let api = provider.api().await;
    drop(provider);
    let away = api.nobody().get("/login/oidc").await;
    assert_eq!((away.status, away.header("location")), (303, "/login?problem=provider_unavailable"));
    assert_eq!(post_key(&api.nobody(), api.acme.key.as_deref().unwrap(), "/").await.header("location"), "/");
    let none = TestApi::start().await;
    assert_eq!(none.nobody().get("/login/oidc").await.error(), (404, "no_such_route"));
    assert!(!none.nobody().get("/login").await.text.contains("/login/oidc"));
}
