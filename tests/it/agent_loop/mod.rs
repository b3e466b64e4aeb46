//! The agent loop, behaviour by behaviour; docs/loop.md lists them by number.

mod blocking;
mod detached;
mod instances;
mod kit;
mod latent;
mod references;
