//! Where traces of requests go: an OpenTelemetry collector, to which spans are sent as OTLP over HTTP, and the lines
//! of the audit log.
//!
//! The server makes them; here is what the operator says about them, and the sending.

mod exporter;
mod header_list;
mod variables;

use std::time::Duration;

use jitney_settings::server::{OTLP_ENDPOINT, SERVICE_NAME, TRACE_SAMPLE_RATIO};
use jitney_settings::{SettingSource, Values};
use jitney_telemetry::trace::{SampleRatio, TraceResource};
use reqwest::Url;
use reqwest::header::HeaderMap;

use crate::env::Env;
use crate::failure::Failure;
use crate::machine;

pub use exporter::OtlpExporter;
pub use variables::variables;

/// Where a collector takes traces.
const PATH: &str = "v1/traces";
/// How long a message may take to be sent, if OTEL_EXPORTER_OTLP_TIMEOUT says nothing.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long spans wait for others, if OTEL_BSP_SCHEDULE_DELAY says nothing.
const EVERY: Duration = Duration::from_secs(5);

/// Where traces go and how.
#[derive(Debug)]
pub struct TracePlan {
    url: Url,
    ratio: SampleRatio,
    resource: TraceResource,
    headers: HeaderMap,
    timeout: Duration,
    every: Duration,
    gzip: bool,
}

impl TracePlan {
    /// Nothing where no collector is named.
    pub fn read(
        values: &Values,
        env: &Env,
        remarks: &mut Vec<String>,
    ) -> Result<Option<Self>, Failure> {
        let endpoint = values.read::<String>(&OTLP_ENDPOINT);
        let Some(endpoint) = endpoint.filter(|endpoint| !endpoint.is_empty()) else {
            return Ok(None);
        };
        let whole = values.source(&OTLP_ENDPOINT)
            == SettingSource::Variable(variables::TRACES_ENDPOINT.to_owned());
        let url = url(&endpoint, whole)?;
        let text = |name: &str| env.text(name).map(str::trim).filter(|text| !text.is_empty());
        if text("OTEL_EXPORTER_OTLP_PROTOCOL").is_some_and(|protocol| protocol != "http/protobuf") {
            remarks.push(
                "OTEL_EXPORTER_OTLP_PROTOCOL has no effect: traces are sent as http/protobuf, \
                 which collectors take at port 4318"
                    .to_owned(),
            );
        }
        let millis = |name: &str| text(name)?.parse().ok().map(Duration::from_millis);
        let ratio = values.value(&TRACE_SAMPLE_RATIO);
        Ok(Some(Self {
            url,
            ratio: SampleRatio::new(ratio),
            resource: resource(values, env),
            headers: header_list::read(env, remarks),
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT").unwrap_or(TIMEOUT),
            every: millis("OTEL_BSP_SCHEDULE_DELAY").unwrap_or(EVERY),
            gzip: text("OTEL_EXPORTER_OTLP_COMPRESSION") == Some("gzip"),
        }))
    }
}

impl TracePlan {
    /// Where the same collector takes logs; nothing where it is not known.
    fn logs_url(&self) -> Option<Url> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}v1/logs", self.url.path().strip_suffix(PATH)?));
        Some(url)
    }
}

/// The address that messages are sent to: below the endpoint, unless it names the whole path.
fn url(endpoint: &str, whole: bool) -> Result<Url, Failure> {
    let wrong = || {
        Failure::usage(format!("otlp_endpoint must be an http or https URL, not {endpoint:?}"))
            .hint("collectors take OTLP over HTTP at a URL such as http://127.0.0.1:4318")
    };
    let mut url = Url::parse(endpoint).map_err(|_| wrong())?;
    if !["http", "https"].contains(&url.scheme()) || url.host_str().is_none() {
        return Err(wrong());
    }
    if !whole && !url.path().ends_with(PATH) {
        let path = format!("{}/{PATH}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

/// Who made the spans. What the operator says of it wins over what is found.
fn resource(values: &Values, env: &Env) -> TraceResource {
    let mut attributes = header_list::pairs(env.text("OTEL_RESOURCE_ATTRIBUTES").unwrap_or(""));
    let service: String = values.value(&SERVICE_NAME);
    if values.source(&SERVICE_NAME) != SettingSource::Default {
        attributes.retain(|(name, _)| name != "service.name");
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let found = [
        ("service.name", service),
        ("service.version", version.clone()),
        ("host.name", machine::hostname()),
        ("process.pid", std::process::id().to_string()),
    ];
    for (name, value) in found {
        if !attributes.iter().any(|(known, _)| known == name) {
            attributes.push((name.to_owned(), value));
        }
    }
    TraceResource { attributes, version }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_below_the_endpoint() {
        for (endpoint, expected) in [
            ("http://c:4318", "http://c:4318/v1/traces"),
            ("http://c:4318/", "http://c:4318/v1/traces"),
            ("https://c/otlp/", "https://c/otlp/v1/traces"),
            ("https://c/otlp/v1/traces", "https://c/otlp/v1/traces"),
        ] {
            assert_eq!(url(endpoint, false).expect("a URL").as_str(), expected);
        }
        assert_eq!(url("http://c/all", true).expect("a URL").as_str(), "http://c/all");
        for wrong in ["c:4318", "grpc://c:4317", "", "http://"] {
            assert!(url(wrong, false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_operator_names_the_service() {
        let name_of = |env: &Env| {
            let values = variables(env).or_defaults(jitney_settings::server::SETTINGS);
            let resource = resource(&values, env);
            let names = resource.attributes.into_iter().filter(|(name, _)| name == "service.name");
            names.map(|(_, value)| value).collect::<Vec<_>>()
        };
        let listed = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=listed,team=a%20b");
        assert_eq!(name_of(&Env::default()), ["jitney"]);
        assert_eq!(name_of(&Env::from([listed])), ["listed"]);
        assert_eq!(name_of(&Env::from([listed, ("OTEL_SERVICE_NAME", "own")])), ["own"]);
    }
}
