//! `/v1/quarantine`: executions that killed their workers (docs/adr/0019-quarantine.md).

pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod view;
