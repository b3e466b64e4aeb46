//! `longhaul sandbox` as its callers see it, and as code that tries to escape sees it.
//!
//! Each attempt runs in every mode that this machine allows, and once without confinement, where it must get
//! through: an attempt that can never succeed proves nothing.

mod bombs;
mod life;
pub(crate) mod service;
mod start;
mod wire;
// They make system calls by number.
#[cfg(target_arch = "x86_64")]
mod attempts;
#[cfg(target_arch = "x86_64")]
mod escapes;
