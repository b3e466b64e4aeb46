//! What an execution wants of a person, and what came of it.

use super::status::named;

named! {
    /// What is wanted.
    RequestKind {
        /// To say whether a call may run.
        Approval = "approval",
        /// To answer a call, in the caller's place.
        Question = "question",
    }
}

named! {
    /// What came of it. Every state but the first is final.
    RequestState {
        /// Nobody said anything yet.
        Waiting = "waiting",
        /// The call may run as it is.
        Approved = "approved",
        /// It may run with other arguments.
        Edited = "edited",
        /// Another call shall run in its place.
        Replaced = "replaced",
        /// It must not run.
        Rejected = "rejected",
        /// The question has its answer.
        Answered = "answered",
        /// Nobody said anything in time: counts as rejected.
        Expired = "expired",
        /// The execution ended first.
        Closed = "closed",
    }
}
