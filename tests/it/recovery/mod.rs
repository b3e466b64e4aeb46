//! The guide's backup and restore (docs/guide/operations.md), with executions open in every state.

mod commands;
mod restore;
mod world;
