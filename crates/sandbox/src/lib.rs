//! Runs code that nobody has read, such as a model's, and gives back what came of it.
//!
//! What must hold: each request gets a process tree of its own that is confined before the first byte of the code is read, and
//! that is gone, with its files, when the answer is sent; where this machine cannot confine, nothing is served. The boundary is
//! the kernel's (namespaces, or landlock, with seccomp and limits in both), never a list of what Python may say.
//!
//! Three programs, all of them this one: the service ([`serve`]), a warden for each request ([`warden`]), which outlives the
//! service by milliseconds and takes everything along, and what confines itself and then becomes the interpreter ([`init`]).
//! docs/sandbox.md is for operators, docs/adr/0018-sandbox.md says why it is like this.
#![cfg(target_os = "linux")]

mod bubblewrap;
mod disk;
mod fence;
mod frames;
pub mod init;
mod job;
mod options;
mod probe;
mod server;
mod service;
mod setup;
mod start;
pub mod warden;
mod watch;
mod wire;

pub use self::{
    options::{Choice, Language, Options},
    server::serve,
    service::Sandbox,
    start::StartError,
};
