//! Requests of an execution to a person, and their states.

use super::status::named;

named! {
    /// Kind of request.
    RequestKind {
        /// Approve or reject a tool call.
        Approval = "approval",
        /// Answer a call in place of the tool.
        Question = "question",
    }
}

named! {
    /// State of a request. Every state but `waiting` is final.
    RequestState {
        /// No response yet.
        Waiting = "waiting",
        /// The call may run unchanged.
        Approved = "approved",
        /// The call may run with edited arguments.
        Edited = "edited",
        /// Another call runs instead.
        Replaced = "replaced",
        /// The call must not run.
        Rejected = "rejected",
        /// The question was answered.
        Answered = "answered",
        /// The request timed out; counts as rejected.
        Expired = "expired",
        /// The execution ended before a response.
        Closed = "closed",
    }
}
