//! What a process gives up before it becomes an interpreter: files, system calls, resources. None of it can be taken back.

mod call_lists;
pub(crate) mod files;
pub(crate) mod limits;
pub(crate) mod system_calls;
