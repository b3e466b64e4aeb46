//! The edges to foreign servers: replies of model servers and results of tool servers as they are seen in the field.
//! docs/reference/models.md lists the rules.

mod overload;
mod replies;
mod tool_servers;
mod windows;
