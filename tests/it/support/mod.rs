//! Support for the tests: real servers, a database per test, planned faults, and waiting without sleeping.

pub(crate) mod api;
pub(crate) mod copies;
pub(crate) mod counted;
pub(crate) mod db;
pub(crate) mod documented;
pub(crate) mod fleet;
pub(crate) mod hello;
pub(crate) mod leases;
pub(crate) mod mcp;
pub(crate) mod npm;
pub(crate) mod process;
pub(crate) mod rates;
pub(crate) mod redis;
pub(crate) mod servers;
pub(crate) mod tools;
pub(crate) mod wait;
