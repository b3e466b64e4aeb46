//! Every screen: its address, its template and the routes of the API that it reads.

/// A screen of the page.
#[derive(Debug)]
pub(crate) struct Screen {
    /// Route; its parameters may be named in the routes of `reads`.
    pub(crate) path: &'static str,
    pub(crate) template: &'static str,
    pub(crate) reads: &'static [Read],
}

/// One answer of the API that a screen shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    /// Name of the answer in the template.
    pub(crate) name: &'static str,
    /// Route of the API, with parameters of the screen's path and fixed query.
    pub(crate) route: &'static str,
    /// Query parameters of the screen that go on to the route. One that ends with a dot is a prefix.
    pub(crate) passes: &'static [&'static str],
    /// How further pages are read, if the screen needs all.
    pub(crate) pages: Option<Pages>,
    /// True if the screen is shown without this answer when the API refuses it; its name is then undefined.
    pub(crate) is_optional: bool,
}

/// Paging of a list: `next` of an answer is `parameter` of the next request, and `list` is continued.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pages {
    pub(crate) parameter: &'static str,
    pub(crate) next: &'static str,
    pub(crate) list: &'static str,
}

const fn read(name: &'static str, route: &'static str) -> Read {
    Read { name, route, passes: &[], pages: None, is_optional: false }
}

impl Read {
    const fn passing(mut self, passes: &'static [&'static str]) -> Self {
        self.passes = passes;
        self
    }

    const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// All pages of a list that is continued `after` its last row.
    const fn all(mut self, list: &'static str) -> Self {
        self.pages = Some(Pages { parameter: "after", next: "next_after", list });
        self
    }
}

/// Parameters that choose tenants, for keys that may see several.
const TENANTS: [&str; 3] = ["org_id", "group_id", "all_tenants"];
const EXECUTION_FILTERS: &[&str] = &[
    "status",
    "wait_reason",
    "failure_code",
    "definition",
    "agent",
    "queue",
    "created_after",
    "created_before",
    "root",
    "parent",
    "metadata.",
    "cursor",
    TENANTS[0],
    TENANTS[1],
    TENANTS[2],
];
const REQUEST_FILTERS: &[&str] = &["state", "agent", "cursor", TENANTS[0], TENANTS[1], TENANTS[2]];
const AUDIT_FILTERS: &[&str] =
    &["actor", "route", "target", "since", "until", "cursor", TENANTS[0], TENANTS[1], TENANTS[2]];
/// Keys for completion in filters and forms.
const DEFINITIONS: Read = read("definitions", "/v1/definitions?limit=200").optional();
const AGENTS: Read = read("agents", "/v1/agents?limit=200").optional();

/// All screens, in the order of the menu.
pub(crate) const SCREENS: &[Screen] = &[
    Screen {
        path: "/",
        template: "overview.html",
        reads: &[
            read("overview", "/v1/overview").passing(&TENANTS),
            read("approvals", "/v1/approvals?state=waiting&limit=10").optional(),
            read("questions", "/v1/questions?state=waiting&limit=10").optional(),
            read("quarantine", "/v1/quarantine?state=held").optional(),
            read("providers", "/v1/providers/health").optional(),
            read("demand", "/v1/fleet/demand").optional(),
            read("schedules", "/v1/schedules?limit=200").optional(),
            read("projects", "/v1/projects?status=awaiting_approval&limit=10").optional(),
            read("failed", "/v1/executions?status=FAILED&limit=8").passing(&TENANTS),
        ],
    },
    Screen {
        path: "/executions",
        template: "executions.html",
        reads: &[
            read("list", "/v1/executions?limit=50").passing(EXECUTION_FILTERS),
            read("overview", "/v1/overview?recent=0").passing(&TENANTS).optional(),
            DEFINITIONS,
            AGENTS,
        ],
    },
    Screen {
        path: "/usage",
        template: "usage.html",
        reads: &[read("usage", "/v1/usage").passing(&["since", "until", TENANTS[0], TENANTS[1], TENANTS[2]])],
    },
    Screen {
        path: "/executions/{id}",
        template: "execution.html",
        reads: &[
            read("e", "/v1/executions/{id}"),
            read("steps", "/v1/executions/{id}/steps?limit=500").all("steps"),
            read("attempts", "/v1/executions/{id}/attempts?limit=200").all("attempts"),
            read("events", "/v1/executions/{id}/events?limit=1000"),
            read("waiting", "/v1/executions/{id}/waiting").optional(),
            read("children", "/v1/executions?parent={id}&limit=100").optional(),
            read("approvals", "/v1/approvals?execution={id}&limit=50").optional(),
            read("questions", "/v1/questions?execution={id}&limit=50").optional(),
            read("artifacts", "/v1/executions/{id}/artifacts").optional(),
            read("ledger", "/v1/executions/{id}/ledger").optional(),
        ],
    },
    Screen {
        path: "/executions/{id}/messages",
        template: "messages.html",
        reads: &[
            read("e", "/v1/executions/{id}"),
            read("steps", "/v1/executions/{id}/steps?limit=50&include=body").passing(&["after"]),
        ],
    },
    Screen { path: "/new", template: "new.html", reads: &[DEFINITIONS, AGENTS] },
    Screen {
        path: "/approvals",
        template: "approvals.html",
        reads: &[read("list", "/v1/approvals?limit=50").passing(REQUEST_FILTERS)],
    },
    Screen { path: "/approvals/{id}", template: "approval.html", reads: &[read("a", "/v1/approvals/{id}")] },
    Screen {
        path: "/questions",
        template: "questions.html",
        reads: &[read("list", "/v1/questions?limit=50").passing(REQUEST_FILTERS)],
    },
    Screen { path: "/questions/{id}", template: "question.html", reads: &[read("q", "/v1/questions/{id}")] },
    Screen {
        path: "/runs",
        template: "runs.html",
        reads: &[read("list", "/v1/runs?limit=50").passing(&["status", "cursor"])],
    },
    Screen {
        path: "/runs/{key}",
        template: "run.html",
        reads: &[read("r", "/v1/runs/{key}"), read("calls", "/v1/runs/{key}/calls?limit=100").passing(&["cursor"])],
    },
    Screen {
        path: "/sessions",
        template: "sessions.html",
        reads: &[read("list", "/v1/sessions?limit=50").passing(&["before"]), AGENTS],
    },
    Screen {
        path: "/sessions/{id}",
        template: "session.html",
        reads: &[
            read("s", "/v1/sessions/{id}"),
            read("messages", "/v1/sessions/{id}/messages?limit=200").all("messages"),
        ],
    },
    Screen {
        path: "/projects",
        template: "projects.html",
        reads: &[read("list", "/v1/projects?limit=50").passing(&["before", "status"])],
    },
    Screen {
        path: "/projects/{id}",
        template: "project.html",
        reads: &[
            read("p", "/v1/projects/{id}"),
            read("tasks", "/v1/projects/{id}/tasks?limit=200").all("tasks"),
            read("plan", "/v1/projects/{id}/plan").optional(),
            read("events", "/v1/projects/{id}/events?limit=100").optional(),
        ],
    },
    Screen {
        path: "/schedules",
        template: "schedules.html",
        reads: &[read("list", "/v1/schedules?limit=100").passing(&["after"]), DEFINITIONS, AGENTS],
    },
    Screen {
        path: "/schedules/{key}",
        template: "schedule.html",
        reads: &[
            read("s", "/v1/schedules/{key}"),
            read("firings", "/v1/schedules/{key}/firings?limit=50").passing(&["before"]),
        ],
    },
    Screen {
        path: "/agents",
        template: "agents.html",
        reads: &[read("list", "/v1/agents?limit=100").passing(&["after"])],
    },
    Screen {
        path: "/agents/{key}",
        template: "agent.html",
        reads: &[
            read("a", "/v1/agents/{key}").passing(&["version"]),
            read("recent", "/v1/executions?agent={key}&limit=10").optional(),
        ],
    },
    Screen {
        path: "/definitions",
        template: "definitions.html",
        reads: &[read("list", "/v1/definitions?limit=100").passing(&["after"])],
    },
    Screen {
        path: "/definitions/{key}",
        template: "definition.html",
        reads: &[
            read("d", "/v1/definitions/{key}").passing(&["version"]),
            read("recent", "/v1/executions?definition={key}&limit=10").optional(),
        ],
    },
    Screen {
        path: "/skills",
        template: "skills.html",
        reads: &[read("list", "/v1/skills?limit=100").passing(&["after"])],
    },
    Screen {
        path: "/indexes",
        template: "indexes.html",
        reads: &[read("list", "/v1/indexes?limit=100").passing(&["after"])],
    },
    Screen {
        path: "/indexes/{name}",
        template: "index.html",
        reads: &[
            read("i", "/v1/indexes/{name}"),
            read("documents", "/v1/indexes/{name}/documents?limit=100").passing(&["after"]),
        ],
    },
    Screen {
        path: "/memory",
        template: "memory.html",
        reads: &[
            read("list", "/v1/memory?limit=50").passing(&["agent", "scope", "session", "cursor"]).optional(),
            AGENTS,
        ],
    },
    Screen {
        path: "/workers",
        template: "workers.html",
        reads: &[
            read("list", "/v1/workers").passing(&["after"]).optional(),
            read("demand", "/v1/fleet/demand").optional(),
        ],
    },
    Screen {
        path: "/workers/{id}",
        template: "worker.html",
        reads: &[read("w", "/v1/workers/{id}").passing(&["after"])],
    },
    Screen {
        path: "/limits",
        template: "limits.html",
        reads: &[read("list", "/v1/limits").passing(&["after"]), DEFINITIONS, AGENTS],
    },
    Screen { path: "/providers", template: "providers.html", reads: &[read("health", "/v1/providers/health")] },
    Screen {
        path: "/quarantine",
        template: "quarantine.html",
        reads: &[read("list", "/v1/quarantine").passing(&["state", "after"])],
    },
    Screen { path: "/webhooks", template: "webhooks.html", reads: &[read("list", "/v1/webhooks")] },
    Screen {
        path: "/webhooks/{id}",
        template: "webhook.html",
        reads: &[
            read("w", "/v1/webhooks/{id}"),
            read("deliveries", "/v1/webhooks/{id}/deliveries?limit=50").passing(&["state", "before"]),
        ],
    },
    Screen { path: "/keys", template: "keys.html", reads: &[read("list", "/v1/keys").passing(&["cursor"]).optional()] },
    Screen {
        path: "/accounts",
        template: "accounts.html",
        reads: &[read("list", "/v1/accounts").passing(&["after", TENANTS[0], TENANTS[1], TENANTS[2]]).optional()],
    },
    Screen {
        path: "/audit",
        template: "audit.html",
        reads: &[read("list", "/v1/audit").passing(AUDIT_FILTERS).optional()],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_screen_has_an_address_of_its_own() {
        let mut paths: Vec<&str> = SCREENS.iter().map(|screen| screen.path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), SCREENS.len());
    }
}
