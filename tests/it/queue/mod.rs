//! The wake-up transport over a real Redis that stops, stalls and forgets.

mod consumer;
mod hints;
mod model_calls;
mod producer;
mod world;
