//! The page: screens for people, rendered on the server from the API's answers ([design](docs/design/access.md)).
//!
//! **Invariant:** the page knows no store. What it shows, it reads over the API's routes in this process, with the
//! cookie of its visitor; what it does, its script sends to the API. So the API alone decides who may see or do what.

mod asked;
mod assets;
mod client;
mod dag;
mod format;
mod live;
mod render;
mod screens;
mod show;
mod sign_in;
mod value;
mod waterfall;

use std::{fmt, sync::Arc};

use axum::{Router, routing::get};
use longhaul_fairness::FairShare;
use secrecy::SecretString;

/// Screens that are followed live at a time, per process; further ones are shown without updates, unless their tenant
/// follows fewer than another.
const MAX_LIVE: u64 = 500;

/// Settings of the page.
#[derive(Clone, Default)]
pub struct PageOptions {
    /// Key with which browsers on this machine are signed in without being asked. For development only.
    pub local_key: Option<SecretString>,
    /// Name of the OpenID Connect provider at which people sign in; `None` without one.
    pub provider: Option<String>,
    /// Address of a trace, with `{trace_id}` in the place of its id; `None`: screens link to no traces.
    pub trace_url: Option<String>,
}

impl fmt::Debug for PageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_local_key = self.local_key.is_some();
        f.debug_struct("PageOptions")
            .field("has_local_key", &has_local_key)
            .field("provider", &self.provider)
            .field("trace_url", &self.trace_url)
            .finish()
    }
}

#[derive(Clone)]
pub(crate) struct PageState(Arc<Shared>);

pub(crate) struct Shared {
    /// All routes of the API.
    api: Router,
    options: PageOptions,
    /// Places for live screens, by the tenant of their visitors.
    live: FairShare<String>,
}

impl std::ops::Deref for PageState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Routes of the page over `api`, the routes of the API.
pub fn router(api: Router, options: PageOptions) -> Router {
    let live = FairShare::new(MAX_LIVE);
    let state = PageState(Arc::new(Shared { api, options, live }));
    let mut router = Router::new()
        .route("/login", get(sign_in::form))
        .route("/find", get(show::find))
        .route("/assets/{file}", get(assets::serve));
    for screen in screens::SCREENS {
        router = router.route(screen.path, get(async move |state, request| show::show(screen, state, request).await));
    }
    router.with_state(state)
}

/// The page that leads to `next`, an address of this page, once a person is signed in.
#[must_use]
pub fn signed_in(next: &str) -> String {
    render::page("signed_in.html", &serde_json::json!({ "next": next, "path": "/login", "query": {} }))
}

/// The page behind an approval's link in an e-mail, whose visitor has no key. `values`: `facts` as pairs, `body`, and
/// `person`, who may decide, `outcome` or `problem`. Texts are escaped.
#[must_use]
pub fn decision(values: &serde_json::Value) -> String {
    render::page("decision.html", values)
}
