//! Two releases at once: a newer journal is handed on, a recorded one is gone on with, and no migration stops the older binary.

mod functions;
mod migrations;
mod newer;
mod recorded;
