//! Whole executions through a real worker.

mod control;
mod growth;
mod journal;
mod kit;
mod retries;
mod run;
mod trace;
mod typed;
mod validator_loop;
