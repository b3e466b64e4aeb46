//! What executions are made from: versions of definitions, agents and skills, and indexes of documents.

pub mod definitions;
pub mod document_generations;
pub mod documents;
pub mod indexes;
pub mod model_call;
pub mod planner;
pub mod put;
pub mod remote;
pub mod skills;
