//! Runs untrusted code, such as code written by a model, and returns its result.
//!
//! Invariants: each request gets a process tree of its own, which is confined before the first byte of the code is
//! read and is gone, with its files, when the answer is sent; a machine that cannot confine serves nothing. The
//! kernel is the boundary (namespaces or landlock, with seccomp and limits in both), never a list of allowed
//! Python.
//!
//! The program runs in three roles: the service ([`serve`]); a warden for each request ([`warden`]), which outlives
//! the service by milliseconds and kills everything it started; and [`init`], which confines itself and then
//! becomes the interpreter. docs/guide/sandbox.md is for operators; docs/design/sandbox.md has the reasons.
#![cfg(target_os = "linux")]

mod bubblewrap;
mod disk;
mod fence;
mod frames;
pub mod init;
mod job;
mod options;
mod probe;
mod proc_files;
mod server;
mod service;
mod setup;
mod start;
pub mod warden;
mod watch;
mod wire;
mod workspace;

pub use self::{
    options::{Choice, Language, Options},
    server::serve,
    service::Sandbox,
    start::StartError,
};
