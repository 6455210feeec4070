//! Objects in cloud buckets: `s3://`, `gs://`, `az://` and their aliases, Azure's https addresses if
//! the server has credentials for them, and those of S3 if the caller asks for signed requests.
//!
//! Credentials come from the server's environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`) at its start,
//! never from a URL. `object_store` signs requests and sends them through our client, so that
//! certificates, proxies and redirects are the same for all downloads.

use std::sync::Arc;
use std::time::Duration;

use jitney_engine::store::{DownloadError, RemoteFile, ResumeFrom};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _,
    ObjectStoreScheme, RetryConfig,
};
use reqwest::{Client, Url};
use tokio_stream::StreamExt as _;

use super::download::{DownloadBody, RemoteDownload, bucket_error};
use crate::env::Env;

/// The credentials and settings of cloud buckets.
pub struct BucketAccess {
    /// Lower-case names, as `object_store` knows them.
    settings: Vec<(String, String)>,
}

impl BucketAccess {
    /// Reads the environment.
    pub fn new(env: &Env) -> Self {
        let texts = env.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
        let ours = ["AWS_", "GOOGLE_", "AZURE_", "IDENTITY_", "MSI_"];
        let settings = texts
            .filter(|(name, _)| ours.iter().any(|prefix| name.starts_with(prefix)))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Self { settings: settings.collect() }
    }

    /// The object that a URL names; `None` if it is a plain web address.
    pub fn object(
        &self,
        url: &Url,
        signed: bool,
        client: &Client,
    ) -> Result<Option<BucketObject>, DownloadError> {
        let (scheme, path) = ObjectStoreScheme::parse(url).map_err(DownloadError::permanent)?;
        let wanted = match (url.scheme(), &scheme) {
            ("http" | "https", ObjectStoreScheme::MicrosoftAzure) => self.opens_azure(url),
            ("http" | "https", ObjectStoreScheme::AmazonS3) => signed,
            ("http" | "https", _) if signed => {
                return Err(DownloadError::permanent(
                    "s3_sse_kms needs an address of S3, or s3://",
                ));
            }
            ("http" | "https", _) => false,
            _ => true,
        };
        if !wanted {
            return Ok(None);
        }
        let store = self.store(&scheme, url, client).map_err(bucket_error)?;
        Ok(Some(BucketObject { store, path }))
    }

    /// A shared link has its signature in the query, and a public file needs none.
    fn opens_azure(&self, url: &Url) -> bool {
        let has_settings = self.settings.iter().any(|(name, _)| name.starts_with("azure_"));
        url.query().is_none() && has_settings
    }

    fn store(
        &self,
        scheme: &ObjectStoreScheme,
        url: &Url,
        client: &Client,
    ) -> Result<Arc<dyn ObjectStore>, Error> {
        let mut plain = url.clone();
        plain.set_query(None);
        plain.set_fragment(None);
        macro_rules! built {
            ($builder:ident) => {{
                let builder = $builder::new()
                    .with_url(plain)
                    .with_retry(retry())
                    .with_http_connector(SharedConnector(client.clone()));
                let settings = self.settings.iter();
                let set = settings.fold(builder, |builder, (name, value)| match name.parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                });
                Ok(Arc::new(set.build()?) as Arc<dyn ObjectStore>)
            }};
        }
        if *scheme == ObjectStoreScheme::AmazonS3 {
            built!(AmazonS3Builder)
        } else if *scheme == ObjectStoreScheme::GoogleCloudStorage {
            built!(GoogleCloudStorageBuilder)
        } else {
            built!(MicrosoftAzureBuilder)
        }
    }
}

/// For requests without a response; the store itself resumes downloads that broke.
fn retry() -> RetryConfig {
    RetryConfig { max_retries: 2, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() }
}

#[derive(Debug)]
struct SharedConnector(Client);

impl HttpConnector for SharedConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// An object in a bucket.
pub struct BucketObject {
    store: Arc<dyn ObjectStore>,
    path: Path,
}

impl BucketObject {
    /// Requests the object, or the rest of it if it has not changed.
    pub fn open(
        self,
        resume: Option<ResumeFrom<'_>>,
    ) -> impl Future<Output = Result<RemoteDownload, DownloadError>> + Send + use<> {
        let rest = resume.map(|ResumeFrom { bytes, tag }| GetOptions {
            range: Some(GetRange::Offset(bytes)),
            if_match: Some(tag.to_owned()),
            ..GetOptions::default()
        });
        async move {
            let response = match rest {
                None => self.store.get(&self.path).await,
                Some(rest) => match self.store.get_opts(&self.path, rest).await {
                    Err(Error::Precondition { .. }) => self.store.get(&self.path).await,
                    other => other,
                },
            };
            let found = response.map_err(bucket_error)?;
            Ok(RemoteDownload {
                bytes_total: Some(found.meta.size),
                begins_at: found.range.start,
                tag: found.meta.e_tag.clone(),
                body: DownloadBody::Bucket(found.into_stream()),
            })
        }
    }
}

impl BucketObject {
    /// Requests the object unless it is the one of this tag.
    pub async fn changed(
        self,
        tag: Option<String>,
    ) -> Result<Option<RemoteDownload>, DownloadError> {
        let options = GetOptions { if_none_match: tag, ..GetOptions::default() };
        let found = match self.store.get_opts(&self.path, options).await {
            Err(Error::NotModified { .. }) => return Ok(None),
            other => other.map_err(bucket_error)?,
        };
        Ok(Some(RemoteDownload {
            bytes_total: Some(found.meta.size),
            begins_at: 0,
            tag: found.meta.e_tag.clone(),
            body: DownloadBody::Bucket(found.into_stream()),
        }))
    }
}

impl BucketObject {
    /// What is below the folder of this path, by URLs that begin as that of the folder.
    pub async fn list(self, folder: Url, files_max: u64) -> Result<Vec<RemoteFile>, DownloadError> {
        let mut files = Vec::new();
        let mut found = self.store.list(Some(&self.path));
        while let Some(object) = found.next().await {
            let object = object.map_err(bucket_error)?;
            if files.len() as u64 >= files_max {
                let many = format!("it holds more than {files_max} files");
                return Err(DownloadError::permanent(many));
            }
            let path: Vec<String> = object
                .location
                .prefix_match(&self.path)
                .into_iter()
                .flatten()
                .map(|part| part.as_ref().to_owned())
                .collect();
            let mut url = folder.clone();
            if let Ok(mut end) = url.path_segments_mut() {
                end.pop_if_empty().extend(&path);
            }
            files.push(RemoteFile { path: path.join("/"), url: url.into(), bytes: object.size });
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in_a_bucket(env: &Env, url: &str, signed: bool) -> Result<bool, DownloadError> {
        let client = super::super::client::make(Arc::new(
            crate::url_rule::UrlRule::patterns(".*").expect("reads"),
        ));
        let url = Url::parse(url).expect("a url");
        let object = BucketAccess::new(env).object(&url, signed, &client.expect("a client"))?;
        Ok(object.is_some())
    }

    #[test]
    fn urls_name_objects_in_buckets_or_plain_files() {
        let none = Env::default();
        let azure =
            Env::from([("AZURE_STORAGE_ACCOUNT_NAME", "a"), ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")]);
        let blob = "https://a.blob.core.windows.net/c/m.mar";
        for (env, url, signed, expected) in [
            (&none, "s3://bucket/m.mar", false, true),
            (&none, "https://bucket.s3.us-east-1.amazonaws.com/m.mar", true, true),
            (&none, "https://bucket.s3.us-east-1.amazonaws.com/m.mar", false, false),
            (&none, "https://host/m.mar", false, false),
            (&none, blob, false, false),
            (&azure, blob, false, true),
            (&azure, &format!("{blob}?sig=x"), false, false),
            (&azure, "az://c/m.mar", false, true),
            (&azure, "abfs://c/m.mar", false, true),
        ] {
            assert_eq!(is_in_a_bucket(env, url, signed), Ok(expected), "{url}");
        }
        assert!(is_in_a_bucket(&none, "https://host/m.mar", true).is_err());
        assert!(is_in_a_bucket(&none, "az://c/m.mar", false).is_err(), "no account");
    }
}
