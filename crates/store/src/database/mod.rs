//! How statements reach Postgres: connections and the pool, migrations, group commit, waits for outages, and ids from
//! the database's clock.

pub(crate) mod batch;
pub(crate) mod clock;
pub(crate) mod connection_age;
pub(crate) mod connections;
pub mod durability;
pub mod ids;
pub mod outage;
pub(crate) mod plans;
pub(crate) mod pool;
pub mod retry;
pub mod schema;
pub(crate) mod session;
