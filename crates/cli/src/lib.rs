//! The `longhaul` command: the services, the embedded development server and the client commands.

pub mod approval_rules;
pub mod argument_errors;
pub mod client;
pub mod commands;
pub mod compose;
pub mod dev_server;
pub mod exit;
mod json_input;
pub mod known_names;
mod located_yaml;
mod open_files;
pub mod program;
pub mod progress;
mod skill_folder;
pub mod spec_file_error;
pub mod spec_files;
pub mod suggest;
pub mod turn_text;

/// mimalloc, since executions allocate many small blocks that live for milliseconds. Built without huge pages
/// (`no_thp`): a huge page stays resident when only part of it is used, and thousands of waiting executions use
/// little of each page.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
