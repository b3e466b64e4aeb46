//! Two releases at once: a newer journal is released for a newer worker, a recorded database is resumed, and no
//! migration breaks the older binary.

mod functions;
mod migrations;
mod newer;
mod recorded;
