//! `/v1/platform`: the providers of the agent-execution contract. For operators only, because all tenants share them.

pub(crate) mod get;
pub(crate) mod put;
pub(crate) mod remove;
