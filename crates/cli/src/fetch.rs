//! Downloads models for the store: plain files over [HTTP](web), objects from cloud
//! [buckets](bucket), both through one client.
//!
//! All downloads run on the admin plane. Every redirect must pass the allow-list and never leads from
//! https to http. The usual proxy variables are honoured. The store decides about retries.

mod bucket;
pub mod client;
mod download;
mod web;

use std::sync::{Arc, OnceLock};

use jitney_engine::store::{
    Download, DownloadError, DownloadFuture, DownloadRequest, Downloader, RemoteFile, serialised,
};
use reqwest::{Client, Url};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::env::Env;
use crate::url_rule::UrlRule;
use bucket::BucketAccess;

/// Downloads from the URLs of an allow-list.
pub struct RemoteFetcher {
    /// Which URLs these are.
    pub rule: Arc<UrlRule>,
    admin: Handle,
    buckets: BucketAccess,
    /// Made for the first download, because reading the system's certificates takes time.
    client: OnceLock<Result<Client, String>>,
}

impl RemoteFetcher {
    /// Opens no connection yet.
    pub fn new(rule: Arc<UrlRule>, env: &Env, admin: Handle) -> Self {
        Self { rule, admin, buckets: BucketAccess::new(env), client: OnceLock::new() }
    }

    fn client(&self) -> Result<Client, DownloadError> {
        let make =
            || client::make(Arc::clone(&self.rule)).map_err(|error| client::error_chain(&error));
        self.client.get_or_init(make).clone().map_err(DownloadError::permanent)
    }

    async fn ask(&self, ask: DownloadRequest<'_>) -> Result<Box<dyn Download>, DownloadError> {
        let client = self.client()?;
        let url = Url::parse(ask.url).map_err(DownloadError::permanent)?;
        let download = match self.buckets.object(&url, ask.signed, &client)? {
            Some(object) => self.on_admin(object.open(ask.resume)).await?,
            None => self.on_admin(web::open(&client, url, ask.resume)).await?,
        };
        Ok(Box::new(download))
    }

    /// What is below a folder of a bucket.
    async fn files_below(
        &self,
        url: &str,
        files_max: u64,
    ) -> Result<Vec<RemoteFile>, DownloadError> {
        if !self.rule.allows(&serialised(url)) {
            return Err(DownloadError::permanent("it is not among the URLs that are allowed"));
        }
        let client = self.client()?;
        let parsed = Url::parse(url).map_err(DownloadError::permanent)?;
        let Some(folder) = self.buckets.object(&parsed, false, &client)? else {
            return Err(DownloadError::permanent("only folders of buckets can be listed"));
        };
        self.on_admin(folder.list(parsed, files_max)).await
    }

    /// A whole small file and what the other side calls it, unless that is what it was called before.
    pub async fn document(
        &self,
        url: &str,
        before: Option<&str>,
        bytes_max: u64,
    ) -> Result<Option<(Vec<u8>, Option<String>)>, DownloadError> {
        let client = self.client()?;
        let url = Url::parse(url).map_err(DownloadError::permanent)?;
        let before = before.map(str::to_owned);
        let download = match self.buckets.object(&url, false, &client)? {
            Some(object) => object.changed(before).await?,
            None => web::changed(&client, url, before).await?,
        };
        let Some(mut download) = download else { return Ok(None) };
        let mut content = Vec::new();
        while let Some(piece) = download.next().await? {
            content.extend_from_slice(&piece);
            if content.len() as u64 > bytes_max {
                let large = format!("it is larger than {bytes_max} bytes");
                return Err(DownloadError::permanent(large));
            }
        }
        Ok(Some((content, download.tag)))
    }

    /// A set of one task: unlike a bare task it is cancelled with the caller.
    async fn on_admin<T: Send + 'static>(
        &self,
        asking: impl Future<Output = Result<T, DownloadError>> + Send + 'static,
    ) -> Result<T, DownloadError> {
        let mut set = JoinSet::new();
        set.spawn_on(asking, &self.admin);
        let asked = set
            .join_next()
            .await
            .ok_or_else(|| DownloadError::permanent("the download did not start"))?;
        asked.map_err(DownloadError::permanent)?
    }
}

impl Downloader for RemoteFetcher {
    fn open<'a>(
        &'a self,
        ask: DownloadRequest<'a>,
    ) -> DownloadFuture<'a, Result<Box<dyn Download>, DownloadError>> {
        Box::pin(self.ask(ask))
    }

    fn list<'a>(
        &'a self,
        url: &'a str,
        files_max: u64,
    ) -> DownloadFuture<'a, Result<Vec<RemoteFile>, DownloadError>> {
        Box::pin(self.files_below(url, files_max))
    }
}

#[cfg(test)]
mod tests;
