//! Restrictions that a process puts on itself before it becomes an interpreter: files, system calls, resources.
//! None of them can be lifted again.

mod call_lists;
pub(crate) mod files;
pub(crate) mod limits;
pub(crate) mod system_calls;
