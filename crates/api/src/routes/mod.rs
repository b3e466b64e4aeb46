//! Handlers, one file per verb, with their request and response types.

pub(crate) mod accounts;
pub(crate) mod audit;
pub(crate) mod channels;
pub(crate) mod contract;
pub(crate) mod definitions;
pub(crate) mod docs;
pub(crate) mod executions;
pub(crate) mod files;
pub(crate) mod fleet;
pub(crate) mod health;
pub(crate) mod human_requests;
pub(crate) mod indexes;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod overview;
pub(crate) mod platform;
pub(crate) mod projects;
pub(crate) mod providers;
pub(crate) mod quarantine;
pub(crate) mod schedules;
pub(crate) mod sessions;
pub(crate) mod skills;
pub(crate) mod webhooks;
pub(crate) mod whoami;
pub(crate) mod workers;
