//! Which database keeps the jobs, and how it is reached.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use tokio_postgres::Config;

/// How long the database may take to accept a connection.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// A database of PostgreSQL.
#[derive(Clone, Debug)]
pub struct JobsDatabase {
    config: Config,
    password_file: Option<PathBuf>,
    /// Whom to trust where the connection is encrypted.
    pub(crate) tls: Arc<ClientConfig>,
}

impl JobsDatabase {
    /// The database of a URL such as `postgres://jitney@db.internal/jobs?sslmode=require`.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn new(
        url: &str,
        password_file: Option<PathBuf>,
        tls: ClientConfig,
    ) -> Result<Self, String> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err("must be a URL such as postgres://user@host/database".to_owned());
        }
        let mut config: Config = url.parse().map_err(|error| {
            let why = std::error::Error::source(&error);
            format!("is no URL of PostgreSQL: {}", why.unwrap_or(&error))
        })?;
        if config.get_password().is_some() {
            return Err("must not hold a password: write it into a file that only the server's user can read, and name that with jobs_database_password".to_owned());
        }
        if config.get_user().is_none() || config.get_dbname().is_none() {
            return Err("must name a user and a database: postgres://user@host/database".to_owned());
        }
        config.connect_timeout(CONNECT_TIMEOUT).application_name("jitney");
        Ok(Self { config, password_file, tls: Arc::new(tls) })
    }

    /// What a connection is made with. The password is read every time, since it may have changed.
    pub(crate) async fn config(&self) -> Result<Config, String> {
        let mut config = self.config.clone();
        if let Some(file) = &self.password_file {
            let read = tokio::fs::read(file).await;
            let password = read.map_err(|error| format!("{}: {error}", file.display()))?;
            config.password(password.trim_ascii_end());
        }
        Ok(config)
    }
}
