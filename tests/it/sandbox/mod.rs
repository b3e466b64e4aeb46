//! `longhaul sandbox` as its callers see it, and as code that wants out sees it.
//!
//! Each attempt is made in every mode that this machine allows, and once more where nothing confines, where it must get
//! through: an attempt that could never work shows nothing.

mod bombs;
mod life;
mod service;
mod start;
mod wire;
// System calls are made by their numbers there.
#[cfg(target_arch = "x86_64")]
mod attempts;
#[cfg(target_arch = "x86_64")]
mod escapes;
