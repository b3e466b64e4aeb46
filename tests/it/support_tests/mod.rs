//! Tests of the test support: a proxy that does not cut or a server that outlives its owner would make other tests
//! pass for the wrong reason.

mod db;
mod owner;
mod proxy;
mod servers;
mod wait;
