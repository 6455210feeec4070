//! The parts of a plan that `jitney serve` and `jitney torchserve` read from the same settings. What only
//! one of them knows is filled in by that one. Spells no default: those stand in the settings table.

use std::path::PathBuf;
use std::sync::Arc;

use jitney_engine::admission::AdmissionLimits;
use jitney_engine::call::REQUEST_BYTES_MAX;
use jitney_engine::python::PythonConfig;
use jitney_engine::store::Limits;
use jitney_server::{Cors, JobsConfig, JobsDatabase, ServerConfig};
use jitney_settings::Values;
use jitney_settings::server::{
    ALLOW_CLIENT_CONFIG, ALLOW_CLIENT_SHARED_MEMORY, BODY_TIMEOUT, COMPRESS_ANSWERS,
    CORS_ALLOWED_HEADERS, CORS_ALLOWED_METHODS, CORS_ALLOWED_ORIGIN, DEBUG_ERRORS,
    DECOMPRESS_REQUESTS, DRAIN_DELAY, DRAIN_TIMEOUT, FULL_STATUS, GARBAGE_COLLECTION, HANDOVER,
    HANDOVER_CHECK_MEMORY, IDLE_TIMEOUT, IMAGE_FORMATS, INSTALL_REQUIREMENTS, JOBS_COUNT,
    JOBS_DATABASE, JOBS_DATABASE_PASSWORD, JOBS_DIR, JOBS_KEEP, JOBS_PARALLEL, JOBS_SIZE,
    KEEP_FAILED_BODIES, KEYS, MAX_CONNECTIONS, MAX_DOWNLOAD_SIZE, MAX_EXPANDED_SIZE,
    MAX_IMAGE_PIXELS, MAX_REQUEST_MEMORY, MAX_REQUEST_SHARE, MAX_REQUEST_SIZE, MAX_UNPACKED_FILES,
    MAX_UNPACKED_SIZE, MIN_BODY_RATE, PACKAGE_CACHE, PRELOAD, TRUSTED_PROXIES, WEBHOOK_SECRET,
    WEBHOOK_URLS, WRITE_TIMEOUT,
};

use crate::failure::Failure;
use crate::fetch::client;
use crate::plan::{Drain, HandoverPlan, KeysPlan};
use crate::webhooks::WebhookClient;

/// The limits and protocols of the listeners; where they listen is not known here.
pub fn server(values: &Values) -> Result<ServerConfig, Failure> {
    Ok(ServerConfig {
        max_request_bytes: values.value(&MAX_REQUEST_SIZE),
        max_connections: values.value(&MAX_CONNECTIONS),
        idle_timeout: values.value(&IDLE_TIMEOUT),
        decompress_requests: values.value(&DECOMPRESS_REQUESTS),
        compress_answers: values.value(&COMPRESS_ANSWERS),
        shutdown_grace: values.value(&DRAIN_TIMEOUT),
        cors: Cors {
            origin: values.read(&CORS_ALLOWED_ORIGIN),
            methods: values.read(&CORS_ALLOWED_METHODS),
            headers: values.read(&CORS_ALLOWED_HEADERS),
        },
        full_status: values.value(&FULL_STATUS),
        client_config: values.flag(&ALLOW_CLIENT_CONFIG),
        client_shared_memory: values.flag(&ALLOW_CLIENT_SHARED_MEMORY),
        jobs: jobs(values)?,
        ..ServerConfig::default()
    })
}

/// Where jobs are kept, how many and for how long.
fn jobs(values: &Values) -> Result<JobsConfig, Failure> {
    let database = values.read::<String>(&JOBS_DATABASE).map(|url| {
        let tls = client::tls_config(client::trusted_certificates()).with_no_client_auth();
        let database = JobsDatabase::new(&url, values.read(&JOBS_DATABASE_PASSWORD), tls);
        database.map_err(|why| Failure::usage(format!("jobs_database {why}")))
    });
    Ok(JobsConfig {
        folder: values.value(&JOBS_DIR),
        database: database.transpose()?,
        count_max: values.value(&JOBS_COUNT),
        bytes_max: values.value(&JOBS_SIZE),
        keep: values.value(&JOBS_KEEP),
        parallel: values.value(&JOBS_PARALLEL),
    })
}

/// What sends webhooks, where URLs are named that may be told.
pub fn webhooks(values: &Values) -> Result<Option<Arc<WebhookClient>>, Failure> {
    let Some(urls) = values.read::<String>(&WEBHOOK_URLS) else { return Ok(None) };
    WebhookClient::new(&urls, values.read(&WEBHOOK_SECRET)).map(|client| Some(Arc::new(client)))
}

/// The Python workers; their environment is not known here.
pub fn python(values: &Values, interpreter: PathBuf) -> PythonConfig {
    PythonConfig {
        install_requirements: values.flag(&INSTALL_REQUIREMENTS),
        image_pixels_max: values.value(&MAX_IMAGE_PIXELS),
        image_formats: values.value(&IMAGE_FORMATS),
        expanded_bytes_max: values.value(&MAX_EXPANDED_SIZE),
        debug_errors: values.flag(&DEBUG_ERRORS),
        garbage_collection: values.value(&GARBAGE_COLLECTION),
        preload: names(&values.read::<String>(&PRELOAD).unwrap_or_default()),
        package_cache: values.read(&PACKAGE_CACHE),
        ..PythonConfig::bare(interpreter)
    }
}

/// A list with commas.
fn names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect()
}

/// How much may be under way, and how slow clients may be.
pub fn admission_limits(values: &Values) -> AdmissionLimits {
    let mut limits = AdmissionLimits::default();
    values.apply(&MAX_REQUEST_MEMORY, &mut limits.bytes);
    limits.keeps_failed = values.flag(&KEEP_FAILED_BODIES);
    limits.share = values.value(&MAX_REQUEST_SHARE);
    limits.request_items = (limits.items as f64 * limits.share) as u64;
    limits.transfers.body_rate_min = values.value(&MIN_BODY_RATE);
    limits.transfers.body_time_max = values.value(&BODY_TIMEOUT);
    limits.transfers.unread_time_max = values.value(&WRITE_TIMEOUT);
    limits
}

/// The keys with names, if a file of them is given.
pub fn keys(values: &Values) -> Result<Option<KeysPlan>, Failure> {
    let proxies = values.read::<String>(&TRUSTED_PROXIES).unwrap_or_default().parse();
    let proxies = proxies.map_err(|why| Failure::usage(format!("trusted_proxies: {why}")))?;
    Ok(values.read(&KEYS).map(|file| KeysPlan { file, proxies }))
}

/// How large a model may be.
pub fn store_limits(values: &Values) -> Limits {
    Limits {
        fetched_bytes_max: values.read(&MAX_DOWNLOAD_SIZE),
        unpacked_bytes_max: values.read(&MAX_UNPACKED_SIZE),
        files_max: values.value(&MAX_UNPACKED_FILES),
        ..Limits::default()
    }
}

/// How the server ends.
pub fn drain(values: &Values) -> Drain {
    Drain { delay: values.value(&DRAIN_DELAY), timeout: values.value(&DRAIN_TIMEOUT) }
}

/// How the ports go from one server to the next, if they do.
pub fn handover(values: &Values) -> Option<HandoverPlan> {
    let check_memory = values.flag(&HANDOVER_CHECK_MEMORY);
    values.read(&HANDOVER).map(|path| HandoverPlan { path, check_memory })
}

/// A request larger than a worker's frame could not be given to any worker.
pub fn bound_request_size(values: &mut Values, remarks: &mut Vec<String>) {
    let asked = values.read::<u64>(&MAX_REQUEST_SIZE);
    if let Some(asked) = asked.filter(|asked| *asked > REQUEST_BYTES_MAX) {
        remarks.push(format!(
            "max_request_size={asked} is more than a worker can be given; {REQUEST_BYTES_MAX} holds"
        ));
        let source = values.source(&MAX_REQUEST_SIZE);
        values.set(&MAX_REQUEST_SIZE, REQUEST_BYTES_MAX, source);
    }
}
