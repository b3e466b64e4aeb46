//! Memory of agents (docs/design/memory.md): episodes, written once when a session or an execution has ended, and a
//! graph of what they are about. `sources` tells what is to be taken and submits the executions that do so, `take`
//! writes episodes, `episodes` reads and changes them, `graph` holds entities and relations, `forget` removes.

mod definition;
mod ends;
mod episodes;
mod exchange;
mod forget;
mod graph;
mod list;
mod sources;
mod take;

use longhaul_domain::TenantId;

pub use definition::memory_definition;
pub use episodes::{Changed, FoundEpisode, Note, Remembered};
pub use forget::{Forgotten, ForgottenFilter};
pub use graph::{Entity, Fact, Relation};
pub use list::{Episode, EpisodeFilter};
pub use take::TakenEpisode;

/// Most episodes of one place. With one more the oldest is forgotten.
const MAX_EPISODES: i64 = 10_000;

/// Owner of memories: nothing of one place is read in another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MemoryPlace {
    pub tenant: TenantId,
    /// Key of the agent.
    pub agent: String,
    /// Empty, or the path of the agent's setting and its value.
    pub scope: String,
}
