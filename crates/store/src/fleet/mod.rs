//! Workers: their leases and fenced writes, fair shares of tenants, and the duties that one worker does for all.

pub mod demand;
pub mod duties;
pub mod lease_writer;
pub mod maintenance;
pub mod remote;
pub mod roster;
pub mod set_aside;
pub mod shares;
pub mod workers;
