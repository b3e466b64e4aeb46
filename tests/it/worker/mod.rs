//! Whole executions through a real worker.

mod commands;
mod control;
mod growth;
mod diverged;
mod journal;
mod kit;
mod odd_json;
mod retries;
mod run;
mod trace;
mod typed;
mod validator_loop;
