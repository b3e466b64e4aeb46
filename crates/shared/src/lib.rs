//! Small helpers that crates share: clock, memory, spelling, characters that are shown.

pub mod clock;
pub mod memory;
pub mod nearest;
pub mod tls;
pub mod visible;
