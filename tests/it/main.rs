//! Everything that needs PostgreSQL, Redis or HTTP, in one binary so that it links once and shares its servers.

// `cfg(test)` is always true here; it tells clippy that these modules are tests.
#[cfg(test)]
mod agent_loop;
#[cfg(test)]
mod api;
#[cfg(test)]
mod bench;
#[cfg(all(test, target_os = "linux"))]
mod browser;
#[cfg(test)]
mod caller_tools;
#[cfg(test)]
mod channels;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod contract_engine;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod edges;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod files;
#[cfg(test)]
mod guides;
#[cfg(test)]
mod http;
#[cfg(test)]
mod llm;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod page;
#[cfg(test)]
mod projects;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod recovery;
mod remote;
#[cfg(test)]
mod retrieval;
#[cfg(all(test, target_os = "linux"))]
mod sandbox;
#[cfg(test)]
mod scaling;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod sessions;
mod skills;
#[cfg(test)]
mod store;
#[cfg(test)]
mod support;
#[cfg(test)]
mod support_tests;
#[cfg(test)]
mod telemetry;
#[cfg(test)]
mod tidy;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod upgrade;
#[cfg(test)]
mod verify;
#[cfg(test)]
mod webhooks;
#[cfg(test)]
mod wires;
#[cfg(test)]
mod worker;
#[cfg(all(test, target_os = "linux"))]
mod workspaces;
