//! The connections to the database: a few, made when they are needed and made again when they break.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::sql;
use crate::database::JobsDatabase;
use crate::error::JobError;

/// Statements that wait for the disk side by side share its writes.
const CONNECTIONS: usize = 8;
/// The longest that a statement may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A value of a statement, with its type: so that one message is enough, and poolers before the database do no harm.
pub(super) type SqlValue<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connections of a server.
pub(super) struct DatabaseConnections {
    database: JobsDatabase,
    /// Their locks are there to take turns at connecting.
    slots: [Mutex<Option<Arc<Client>>>; CONNECTIONS],
    next: AtomicUsize,
}

impl DatabaseConnections {
    /// Connects, and makes the tables where there are none.
    pub(super) async fn open(database: &JobsDatabase) -> Result<Self, JobError> {
        let (slots, next) = (Default::default(), AtomicUsize::new(0));
        let connections = Self { database: database.clone(), slots, next };
        let there = connections.query(sql::TABLES_EXIST, &[]).await?;
        if !there.first().is_some_and(|row| row.get(0)) {
            let client = connections.client().await?;
            client.batch_execute(sql::MAKE_TABLES).await.map_err(|error| away(&error))?;
        }
        Ok(connections)
    }

    /// The rows that a statement gives.
    pub(super) async fn query(
        &self,
        statement: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, JobError> {
        let client = self.client().await?;
        match timeout(ANSWER_TIMEOUT, client.query_typed(statement, values)).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => Err(away(&error)),
            Err(_) => Err(JobError::Away("it did not answer in time".to_owned())),
        }
    }

    /// One of the connections, by turns.
    async fn client(&self) -> Result<Arc<Client>, JobError> {
        let slot = &self.slots[self.next.fetch_add(1, Relaxed) % CONNECTIONS];
        let mut slot = slot.lock().await;
        if let Some(client) = slot.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let config = self.database.config().await.map_err(JobError::Away)?;
        let tls = MakeRustlsConnect::new((*self.database.tls).clone());
        let (client, connection) = config.connect(tls).await.map_err(|error| away(&error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(%error, "a connection to the database of jobs broke");
            }
        });
        Ok(Arc::clone(slot.insert(Arc::new(client))))
    }
}

/// What the database said. Clients are told only that it failed, so it goes to the log.
fn away(error: &Error) -> JobError {
    let why = error.source().map_or_else(|| error.to_string(), |why| format!("{error}: {why}"));
    tracing::warn!(error = why, "the database of jobs");
    JobError::Away(why)
}
