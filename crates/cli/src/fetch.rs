//! Models from other machines: the store asks, this room finds out who can answer. Plain files come
//! over [HTTP](web), objects of clouds from their [buckets](bucket), both through one client.
//!
//! Everything runs on the admin plane, whoever asks. Every redirect has to pass the allow-list again
//! and never leads from https to http. The usual proxy variables are honoured. How often and for how
//! long something is tried is the store's business.

mod bucket;
pub mod client;
mod web;

use std::error::Error;
use std::sync::{Arc, OnceLock};

use jitney_engine::store::{Ask, Download, Later, Remote, Trouble};
use reqwest::{Client, Url};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::env::Env;
use crate::url_rule::UrlRule;
use bucket::Clouds;

/// Other machines, as far as the allow-list goes.
pub struct Elsewhere {
    rule: Arc<UrlRule>,
    admin: Handle,
    clouds: Clouds,
    /// Made for the first download: the system's certificates take a moment to read.
    client: OnceLock<Result<Client, String>>,
}

impl Elsewhere {
    /// Nothing is reached until a model is asked for.
    pub fn new(rule: Arc<UrlRule>, env: &Env, admin: Handle) -> Self {
        Self { rule, admin, clouds: Clouds::new(env), client: OnceLock::new() }
    }

    fn client(&self) -> Result<Client, Trouble> {
        let make = || client::make(Arc::clone(&self.rule)).map_err(|error| words(&error));
        self.client.get_or_init(make).clone().map_err(Trouble::lasting)
    }

    async fn ask(&self, ask: Ask<'_>) -> Result<Box<dyn Download>, Trouble> {
        let client = self.client()?;
        let url = Url::parse(ask.url).map_err(Trouble::lasting)?;
        match self.clouds.place(&url, ask.signed, &client)? {
            Some(place) => self.on_admin(place.open(ask.resume)).await,
            None => self.on_admin(web::open(&client, url, ask.resume)).await,
        }
    }

    /// A set of one: unlike a bare task it ends when the caller goes away.
    async fn on_admin(
        &self,
        asking: impl Future<Output = Result<Box<dyn Download>, Trouble>> + Send + 'static,
    ) -> Result<Box<dyn Download>, Trouble> {
        let mut set = JoinSet::new();
        set.spawn_on(asking, &self.admin);
        let asked = set.join_next().await.ok_or_else(|| Trouble::lasting("nobody asked"))?;
        asked.map_err(Trouble::lasting)?
    }
}

impl Remote for Elsewhere {
    fn open<'a>(&'a self, ask: Ask<'a>) -> Later<'a, Result<Box<dyn Download>, Trouble>> {
        Box::pin(self.ask(ask))
    }
}

/// The error and everything below it, since the outermost one seldom says what happened.
fn words(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let more = error.to_string();
        // Some errors repeat what is below them.
        if !words.ends_with(&more) {
            words += &format!(": {more}");
        }
        below = error.source();
    }
    words
}

#[cfg(test)]
mod tests;
