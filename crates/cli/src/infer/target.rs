//! Who answers rows: a model in this process, one of a running server, or a cluster. All of them end a row exactly once,
//! answered or failed; a [`Failure`] means that no row can be answered any more and the job stops.

mod cluster;
mod here;
mod there;

pub use cluster::Cluster;
pub use here::Here;
pub use there::There;

use super::answer::Outcome;
use super::row::Row;
use crate::failure::Failure;

/// Who answers.
#[derive(Clone)]
pub enum Target {
    /// A model in this process.
    Here(Here),
    /// A model elsewhere.
    There(There),
    /// A Ray job.
    Cluster(Cluster),
}

impl Target {
    /// Asks for one row.
    pub async fn ask(self, row: Row) -> Result<Outcome, Failure> {
        match self {
            Self::Here(here) => here.ask(row).await,
            Self::There(there) => there.ask(row).await,
            Self::Cluster(cluster) => cluster.ask(row).await,
        }
    }
}
