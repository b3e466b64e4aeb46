//! The wake-up transport over a real Redis that stops, stalls and loses its data.

mod consumer;
mod hints;
mod model_calls;
mod pace;
mod producer;
mod world;
