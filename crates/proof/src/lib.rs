//! `longhaul verify` and `longhaul bench`: prove on this machine, with real processes and private servers, that nothing
//! is lost or done twice, and measure latency, throughput and memory.
//!
//! Not in the container image: the binary's feature `proof` switches `verify` on, its feature `bench` the benchmarks.

#[cfg(feature = "bench")]
pub mod bench;
pub mod verify;
