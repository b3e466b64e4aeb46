//! Whole executions through a real worker.

mod budget_bounds;
mod budgets;
mod children;
mod commands;
mod commits;
mod concluding;
mod control;
mod diverged;
mod fairness;
mod forks;
mod growth;
pub(crate) mod journal;
pub(crate) mod kit;
mod memory;
mod metrics;
mod odd_json;
mod provider_health;
mod retries;
mod run;
mod sub_agents;
mod sweep;
mod tool_servers;
mod trace;
mod trace_trees;
pub(crate) mod typed;
mod validator_loop;
mod wires;
