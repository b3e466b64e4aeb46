//! Whole executions through a real worker.

mod control;
mod diverged;
mod journal;
mod kit;
mod odd_json;
mod retries;
mod run;
mod trace;
mod typed;
mod validator_loop;
