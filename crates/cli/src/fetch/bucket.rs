//! Objects in the buckets of clouds: `s3://`, `gs://`, `az://` and their aliases, Azure's own
//! addresses if the server has credentials for them, and S3's if a caller asks for signed requests.
//!
//! Credentials are the server's, from the usual variables (`AWS_*`, `GOOGLE_*`, `AZURE_*`) as they
//! were at the start, and never in a URL. Signing is `object_store`'s business; it goes through our
//! own client, so that certificates, proxies and redirects are the same for all downloads.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jitney_engine::store::{Download, Later, Resume, Trouble};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt as _,
    ObjectStoreScheme, RetryConfig,
};
use reqwest::{Client, Url};
use tokio_stream::{Stream, StreamExt as _};

use super::words;
use crate::env::Env;

/// The clouds, and what the environment says about them.
pub struct Clouds {
    /// Names as `object_store` knows them, in small letters.
    settings: Vec<(String, String)>,
}

impl Clouds {
    /// Takes what the environment says.
    pub fn new(env: &Env) -> Self {
        let texts = env.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
        let ours = ["AWS_", "GOOGLE_", "AZURE_"];
        let settings = texts
            .filter(|(name, _)| ours.iter().any(|prefix| name.starts_with(prefix)))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Self { settings: settings.collect() }
    }

    /// Where a URL leads; nowhere here if it is a plain one.
    pub fn place(
        &self,
        url: &Url,
        signed: bool,
        client: &Client,
    ) -> Result<Option<Place>, Trouble> {
        let (scheme, path) = ObjectStoreScheme::parse(url).map_err(Trouble::lasting)?;
        let wanted = match (url.scheme(), &scheme) {
            ("http" | "https", ObjectStoreScheme::MicrosoftAzure) => self.opens_azure(url),
            ("http" | "https", ObjectStoreScheme::AmazonS3) => signed,
            ("http" | "https", _) if signed => {
                return Err(Trouble::lasting("s3_sse_kms needs an address of S3, or s3://"));
            }
            ("http" | "https", _) => false,
            _ => true,
        };
        if !wanted {
            return Ok(None);
        }
        let store = self.store(&scheme, url, client).map_err(|error| trouble(&error))?;
        Ok(Some(Place { store, path }))
    }

    /// A shared link carries its signature in the query; a public file needs none.
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
                    .with_http_connector(Connector(client.clone()));
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

/// A download that broke is the store's to try again; this is for requests that were not answered.
fn retry() -> RetryConfig {
    RetryConfig { max_retries: 2, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() }
}

#[derive(Debug)]
struct Connector(Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// An object.
pub struct Place {
    store: Arc<dyn ObjectStore>,
    path: Path,
}

impl Place {
    /// Asks for the object, or for the rest of it if it is still the same one.
    pub fn open(
        self,
        resume: Option<Resume<'_>>,
    ) -> impl Future<Output = Result<Box<dyn Download>, Trouble>> + Send + use<> {
        let rest = resume.map(|Resume { bytes, tag }| GetOptions {
            range: Some(GetRange::Offset(bytes)),
            if_match: Some(tag.to_owned()),
            ..GetOptions::default()
        });
        async move {
            let asked = match rest {
                None => self.store.get(&self.path).await,
                Some(rest) => match self.store.get_opts(&self.path, rest).await {
                    Err(Error::Precondition { .. }) => self.store.get(&self.path).await,
                    other => other,
                },
            };
            let object = Object::from(asked.map_err(|error| trouble(&error))?);
            Ok(Box::new(object) as Box<dyn Download>)
        }
    }
}

fn trouble(error: &Error) -> Trouble {
    let lasting = matches!(
        error,
        Error::NotFound { .. }
            | Error::InvalidPath { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotSupported { .. }
    );
    Trouble { why: words(error), passing: !lasting }
}

struct Object {
    bytes_total: u64,
    begins_at: u64,
    tag: Option<String>,
    pieces: std::pin::Pin<Box<dyn Stream<Item = object_store::Result<Bytes>> + Send>>,
}

impl From<GetResult> for Object {
    fn from(got: GetResult) -> Self {
        let (bytes_total, begins_at) = (got.meta.size, got.range.start);
        Self { bytes_total, begins_at, tag: got.meta.e_tag.clone(), pieces: got.into_stream() }
    }
}

impl Download for Object {
    fn bytes_total(&self) -> Option<u64> {
        Some(self.bytes_total)
    }

    fn begins_at(&self) -> u64 {
        self.begins_at
    }

    fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    fn next(&mut self) -> Later<'_, Result<Option<Bytes>, Trouble>> {
        Box::pin(async { self.pieces.next().await.transpose().map_err(|error| trouble(&error)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads_to_a_bucket(env: &Env, url: &str, signed: bool) -> Result<bool, Trouble> {
        let client = super::super::client::make(Arc::new(
            crate::url_rule::UrlRule::patterns(".*").expect("reads"),
        ));
        let url = Url::parse(url).expect("a url");
        let place = Clouds::new(env).place(&url, signed, &client.expect("a client"))?;
        Ok(place.is_some())
    }

    #[test]
    fn urls_lead_to_buckets_or_are_plain() {
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
            assert_eq!(leads_to_a_bucket(env, url, signed), Ok(expected), "{url}");
        }
        assert!(leads_to_a_bucket(&none, "https://host/m.mar", true).is_err());
        assert!(leads_to_a_bucket(&none, "az://c/m.mar", false).is_err(), "whose container?");
    }
}
