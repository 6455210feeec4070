//! The settings of a server that `jitney serve` and `jitney.yaml` know. Those with a property are also
//! keys of `config.properties`.

use crate::setting::settings;
use crate::words::words;
use crate::{Setting, SettingKind, TimeUnit};

const PORT: SettingKind = SettingKind::Whole { min: 0, max: 65535 };
const SECONDS: SettingKind = SettingKind::Time(TimeUnit::Seconds);

words! {
    /// The form of log lines.
    LogFormat:
    /// Lines for people; under `jitney torchserve` those of TorchServe.
    #[default]
    Text = "text",
    /// One JSON object per line.
    Json = "json",
}

words! {
    /// A version of TLS.
    TlsVersion:
    /// What every client of today speaks.
    #[default]
    Tls13 = "1.3",
    /// What older ones speak.
    Tls12 = "1.2",
}

words! {
    /// The HTTP status of a request that finds a full queue.
    FullStatus:
    /// The server has too much to do.
    #[default]
    Unavailable = "503",
    /// Its clients send too much.
    TooManyRequests = "429",
}

words! {
    /// Who decides when Python's garbage collector looks at everything.
    GarbageCollection:
    /// The worker: between batches, and not at what loading left.
    #[default]
    Jitney = "jitney",
    /// Python's own thresholds.
    Python = "python",
}

/// The first settings of the table say where to listen.
pub const ADDRESSES: usize = 7;

settings! {
    /// Every setting of a server.
    SETTINGS:
    HOST = Setting::new("host", SettingKind::Text, "Address to listen on; anything but loopback opens the server to the network, see --token-auth")
        .or("127.0.0.1").flag("host", "HOST");
    MANAGEMENT_HOST = Setting::new("management_host", SettingKind::Text, "Address to listen on for management, over HTTP and gRPC; 127.0.0.1 keeps it for this machine while predictions are open to the network")
        .or_else("as host").flag("management-host", "HOST");
    INFERENCE_PORT = Setting::new("port", PORT, "Port for predictions; 0 takes a free one, and free ones for the other listeners").or("8080").flag("port", "PORT");
    MANAGEMENT_PORT = Setting::new("management_port", PORT, "Port for management: register, scale, describe").or("8081").flag("management-port", "PORT");
    METRICS_PORT = Setting::new("metrics_port", PORT, "Port for metrics").or("8082").flag("metrics-port", "PORT");
    GRPC_PORT = Setting::new("grpc_port", PORT, "Port for predictions over gRPC").or("7070").flag("grpc-port", "PORT").property("grpc_inference_port");
    GRPC_MANAGEMENT_PORT = Setting::new("grpc_management_port", PORT, "Port for management over gRPC").or("7071").flag("grpc-management-port", "PORT").property("grpc_management_port");
    TOKEN_AUTH = Setting::new("token_auth", SettingKind::Flag, "Ask clients for a token; the keys are written to key_file.json in the current directory")
        .or("false").flag("token-auth", "BOOL");
    KEY_FILE = Setting::new("key_file", SettingKind::Path, "Take the keys from this file, in the form of key_file.json, instead of making them, and ask clients for them; it is read again when it changes, and several servers can share it")
        .or_else("none").flag("key-file", "FILE");
    KEYS = Setting::new("keys", SettingKind::Path, "Ask clients for a key of this file, keys.yaml, in which each has a name, scopes, a tenant, an expiry and a quota; it is read again when it changes, and `jitney keys` writes it")
        .or_else("none").flag("keys", "FILE").property("keys");
    TRUSTED_PROXIES = Setting::new("trusted_proxies", SettingKind::Texts, "Addresses and networks of proxies, such as 10.0.0.0/8, whose header x-jitney-tenant counts where keys.yaml names the tenants")
        .or_else("none").flag("trusted-proxies", "ADDRESS,...").property("trusted_proxies");
    FULL_STATUS = Setting::new("full_status", SettingKind::Choice(FullStatus::WORDS), "HTTP status of a request that finds the queue of its model full")
        .or("503").flag("full-status", "STATUS").property("full_status");
    TLS_CERT = Setting::new("tls_cert", SettingKind::Path, "Speak HTTPS with this certificate, PEM, with its chain if it has one").or_else("none").flag("tls-cert", "FILE");
    TLS_KEY = Setting::new("tls_key", SettingKind::Path, "The certificate's private key, PEM").or_else("none").flag("tls-key", "FILE");
    CLIENT_CA = Setting::new("client_ca", SettingKind::Path, "Let only clients in whose certificate one of these authorities has signed, PEM, on every port that speaks TLS; read again when it changes, as the certificate and its key are")
        .or_else("none: clients show no certificate").flag("client-ca", "FILE").property("client_ca");
    TLS_MIN_VERSION = Setting::new("tls_min_version", SettingKind::Choice(TlsVersion::WORDS), "The oldest version of TLS that is spoken")
        .or_else("1.3; under `jitney torchserve` 1.2").flag("tls-min-version", "VERSION").property("tls_min_version");
    CORS_ALLOWED_ORIGIN = Setting::new("cors_allowed_origin", SettingKind::Texts, "Origins of other sites whose pages may read answers, such as https://app.example, or * for every origin where nothing is managed; pages of an origin that is named (a star names none) may also manage the server")
        .or_else("none").flag("cors-allowed-origin", "ORIGIN,...").property("cors_allowed_origin");
    CORS_ALLOWED_METHODS = Setting::new("cors_allowed_methods", SettingKind::Texts, "Methods that these pages may use")
        .or_else("the one that a browser asks for; under `jitney torchserve` none").flag("cors-allowed-methods", "METHOD,...").property("cors_allowed_methods");
    CORS_ALLOWED_HEADERS = Setting::new("cors_allowed_headers", SettingKind::Texts, "Headers that these pages may send")
        .or_else("those that a browser asks for; under `jitney torchserve` none").flag("cors-allowed-headers", "HEADER,...").property("cors_allowed_headers");
    MODEL_STORE = Setting::new("model_store", SettingKind::Path, "Directory in which the management API finds archives by file name; paths elsewhere have to be named on the command line")
        .or_else("none").flag("model-store", "DIR").property("model_store");
    POLL = Setting::new("poll", SECONDS, "Look into the served repositories this often, and load what is new or changed there; 0 means never, without a value it is 15 s")
        .or("0s").flag("poll", "TIME").bare("15s");
    REGISTRATIONS = Setting::new("registrations", SettingKind::Text, "Serve the models that this YAML document lists, and follow its changes: a file, a directory of .yaml files (a mounted ConfigMap), http(s)://, s3://, gs:// or az://")
        .or_else("none").flag("registrations", "FILE|URL");
    REGISTRATIONS_EVERY = Setting::new("registrations_every", SECONDS, "Read the list of --registrations this often")
        .or("10s").flag("registrations-every", "TIME");
    MAX_REQUEST_SIZE = Setting::new("max_request_size", SettingKind::Size, "Largest request body, such as 64MiB; at most 960MiB")
        .or("6553500").flag("max-request-size", "SIZE").property("max_request_size");
    MAX_REQUEST_MEMORY = Setting::new("max_request_memory", SettingKind::Size, "Most memory for request bodies on their way in, requests that wait or run, and answers that are not yet read; when it is full the slowest clients are cut first, and new requests get 503")
        .or_else("half of the memory of the machine or of its cgroup").flag("max-request-memory", "SIZE").property("max_request_memory");
    MAX_REQUEST_SHARE = Setting::new("max_request_share", SettingKind::Fraction, "Largest share that one request may take of the 1,000,000 items that may be under way in the whole server; one with more is rejected with 400")
        .or("0.25").flag("max-request-share", "SHARE").property("max_request_share");
    MEMORY = Setting::new("memory", SettingKind::AutoSize, "Memory for all models together, such as 12GiB: one with load=on_demand is loaded when there is room, and idle ones leave for it; one whose workers follow the load gets no more than there is room for")
        .or_else("auto: four fifths of the memory of the machine or its cgroup").flag("memory", "SIZE").property("memory");
    GPU_MEMORY = Setting::new("gpu_memory", SettingKind::DeviceMemory, "Memory of every GPU that may be held, by models and by other programs together: a worker goes to the GPU with most of it free, and idle models with load=on_demand leave it for others; off gives GPUs in turn")
        .or("auto").or_torchserve("off").or_else("auto, 0.9 of what it has; off under `jitney torchserve`").flag("gpu-memory", "SHARE|SIZE").property("gpu_memory");
    MIN_BODY_RATE = Setting::new("min_body_rate", SettingKind::Size, "Bytes per second that a request body must bring on average after its first 20 seconds; 0 for no limit")
        .or("1KiB").flag("min-body-rate", "SIZE").property("min_body_rate");
    BODY_TIMEOUT = Setting::new("body_timeout", SECONDS, "Time that a request body may take to arrive in all; 0 for no limit")
        .or("600s").flag("body-timeout", "TIME").property("body_timeout");
    WRITE_TIMEOUT = Setting::new("write_timeout", SECONDS, "Time in which a client must take 64 KiB of its answer, or what is left of it; else it is disconnected; 0 for no limit")
        .or("60s").flag("write-timeout", "TIME").property("write_timeout");
    MAX_CONNECTIONS = Setting::new("max_connections", SettingKind::from(1), "Most connections at a time, for predictions and for management and metrics each; they also stay below the limit of open files")
        .or("16384").flag("max-connections", "N").property("max_connections");
    IDLE_TIMEOUT = Setting::new("idle_timeout", SECONDS, "Time that a connection may be open without a request; longer than load balancers keep theirs")
        .or("620s").flag("idle-timeout", "TIME").property("idle_timeout");
    DECOMPRESS_REQUESTS = Setting::new("decompress_requests", SettingKind::Flag, "Decompress request bodies whose Content-Encoding is gzip, zstd or deflate; what comes out counts against max_request_size")
        .or("true").or_torchserve("false").or_else("true; false under `jitney torchserve`, where handlers get the body as it came").flag("decompress-requests", "BOOL").property("decompress_requests");
    COMPRESS_ANSWERS = Setting::new("compress_answers", SettingKind::Flag, "Compress answers from 1,400 bytes on where the client's Accept-Encoding asks for gzip, zstd or deflate; streams stay as they are")
        .or("true").or_torchserve("false").or_else("true; false under `jitney torchserve`").flag("compress-answers", "BOOL").property("compress_answers");
    MAX_DOWNLOAD_SIZE = Setting::new("max_download_size", SettingKind::Size, "Largest file to download for a model, such as 10GiB")
        .or_else("64GiB, or half of the free disk space if that is less").flag("max-download-size", "SIZE").property("max_download_size");
    MAX_UNPACKED_SIZE = Setting::new("max_unpacked_size", SettingKind::Size, "Most bytes an archive may unpack to")
        .or_else("64GiB, or half of the free disk space if that is less").flag("max-unpacked-size", "SIZE").property("max_unpacked_size");
    MAX_UNPACKED_FILES = Setting::new("max_unpacked_files", SettingKind::from(0), "Most files and directories in an archive")
        .or("200000").flag("max-unpacked-files", "N").property("max_unpacked_files");
    IO_THREADS = Setting::new("io_threads", SettingKind::from(1), "Threads that serve connections")
        .or_else("the processors less two, at most 16").flag("io-threads", "N").property("io_threads");
    MAX_WORKERS_PER_MODEL = Setting::new("max_workers_per_model", SettingKind::Whole { min: 1, max: u32::MAX as u64 }, "Most workers that a model may have, whoever asks for them: an archive, a registration, a live change")
        .or_else("64, or four times the processors, or as many as are configured for every model").flag("max-workers-per-model", "N").property("max_workers_per_model");
    PYTHON = Setting::new("python", SettingKind::Path, "Python for Python models")
        .or_else("the one beside this program, of the active virtual environment, or python3")
        .flag("python", "PATH").property("python").file_only();
    INSTALL_REQUIREMENTS = Setting::new("install_requirements", SettingKind::Flag, "Install what a model's requirements file asks for, for that model alone")
        .or("false").flag("install-requirements", "BOOL").property("install_py_dep_per_model");
    RAY = Setting::new("ray", SettingKind::Text, "Let a Ray cluster place the workers of Python models on its nodes: auto, or host:port of its head")
        .or_else("none: workers are processes of this machine").flag("ray", "ADDRESS").bare("auto");
    WORKER_HOST = Setting::new("worker_host", SettingKind::Text, "Address of this machine, with a port if it must be a certain one, on which workers of other nodes connect")
        .or_else("this machine's address in the Ray cluster, and any free port").flag("worker-host", "HOST");
    LOG_LEVEL = Setting::new("log_level", SettingKind::Text, "What to log: error, warn, info, debug, trace, or per part as in info,jitney_engine=debug")
        .or("info").flag("log-level", "FILTER").aliases(&["log"]);
    LOG_FORMAT = Setting::new("log_format", SettingKind::Choice(LogFormat::WORDS), "Form of log lines, those of requests too: text for people, json for one object per line")
        .or("text").flag("log-format", "FORMAT").property("log_format");
    ACCESS_LOG = Setting::new("access_log", SettingKind::Flag, "Write a line per request to stderr").or("false").flag("access-log", "BOOL");
    AUDIT_LOG = Setting::new("audit_log", SettingKind::Path, "Write a JSON line to this file per change that somebody makes to the server, and per attempt that is refused: who, from where, what, before and after; at 100 MB a new file begins, and five old ones are kept")
        .or_else("none").flag("audit-log", "FILE").property("audit_log");
    OTLP_ENDPOINT = Setting::new("otlp_endpoint", SettingKind::Text, "Send traces of requests to this OpenTelemetry collector, as OTLP over HTTP, such as http://127.0.0.1:4318; OTEL_EXPORTER_OTLP_ENDPOINT says the same")
        .or_else("none: requests are not traced").flag("otlp-endpoint", "URL").property("otlp_endpoint");
    TRACE_SAMPLE_RATIO = Setting::new("trace_sample_ratio", SettingKind::Share, "Share of the requests to trace that come without a decision in their traceparent header, from 0 (none) to 1 (all)")
        .or("1").flag("trace-sample-ratio", "SHARE").property("trace_sample_ratio");
    SERVICE_NAME = Setting::new("service_name", SettingKind::Text, "Name of this server in traces; OTEL_SERVICE_NAME says the same")
        .or("jitney").flag("service-name", "NAME").property("service_name");
    DEBUG_ERRORS = Setting::new("debug_errors", SettingKind::Flag, "Send the tracebacks of Python models to callers that use handles; they are in the log anyway")
        .or("false").flag("debug-errors", "BOOL").property("debug_errors");
    KEEP_FAILED_BODIES = Setting::new("keep_failed_bodies", SettingKind::Flag, "Keep the bodies of the last requests that failed, up to 256 KiB each and 30 of a version, for the form of the dashboard; they count against max_request_memory, and whoever has the management key can read them")
        .or("false").flag("keep-failed-bodies", "BOOL").property("keep_failed_bodies");
    MAX_IMAGE_PIXELS = Setting::new("max_image_pixels", SettingKind::from(1), "Most pixels of an image that a stock handler or a parameter of type Image decodes; a larger one is rejected with 400")
        .or("89478485").flag("max-image-pixels", "N").property("max_image_pixels");
    IMAGE_FORMATS = Setting::new("image_formats", SettingKind::Text, "Formats of images that stock handlers and parameters of type Image open, by Pillow's names; others are rejected with 400")
        .or("JPEG,PNG,WEBP,GIF,BMP,TIFF").flag("image-formats", "NAMES").property("image_formats");
    MAX_EXPANDED_SIZE = Setting::new("max_expanded_size", SettingKind::Size, "Most bytes to which a compressed array file, a Parquet file or a saved tensor of a client may expand in a Python worker; more is rejected with 400")
        .or("64MiB").flag("max-expanded-size", "SIZE").property("max_expanded_size");
    GARBAGE_COLLECTION = Setting::new("garbage_collection", SettingKind::Choice(GarbageCollection::WORDS), "When Python's garbage collector makes full runs in workers: jitney freezes what loading left and collects between batches, python leaves it to Python's thresholds")
        .or("jitney").flag("garbage-collection", "WORD").property("garbage_collection");
    PRELOAD = Setting::new("preload", SettingKind::Texts, "Python modules that one process imports, such as torch,torchvision; workers are forked from it, start without that import and share what it writes into memory. A module that starts threads or touches a GPU when it is imported does not belong here")
        .flag("preload", "MODULES").property("preload");
    PACKAGE_CACHE = Setting::new("package_cache", SettingKind::Path, "Folder in which the Python packages that Jitney brings stay between starts, with the byte code that Python makes of them, so that workers start sooner. Workers run what lies there: nobody else may write to it")
        .or_else("none: they are unpacked at every start").flag("package-cache", "DIR").property("package_cache");
    ALLOW_CLIENT_CONFIG = Setting::new("allow_client_config", SettingKind::Flag, "Let clients that may load models set max_batch_size, dynamic_batching and instance_group of a model when they load it, as Triton's clients can")
        .or("false").flag("allow-client-config", "BOOL").property("allow_client_config");
    ALLOW_CLIENT_SHARED_MEMORY = Setting::new("allow_client_shared_memory", SettingKind::Flag, "Let clients on this machine pass tensors in shared memory (objects below /dev/shm) that they register; they can then name any object that the server may open, so every client has to be trusted")
        .or("false").flag("allow-client-shared-memory", "BOOL").property("allow_client_shared_memory");
    JOBS_DIR = Setting::new("jobs_dir", SettingKind::Path, "Folder for requests with the header Prefer: respond-async, which are answered later; it is made for the first one, and one server at a time has it")
        .or("jitney-jobs").flag("jobs-dir", "DIR").property("jobs_dir");
    JOBS_DATABASE = Setting::new("jobs_database", SettingKind::Text, "Keep jobs in this database of PostgreSQL instead of jobs_dir, such as postgres://jitney@db.internal/jobs?sslmode=require; several servers that name the same one share their jobs")
        .or_else("none: jobs_dir").flag("jobs-database", "URL").property("jobs_database");
    JOBS_DATABASE_PASSWORD = Setting::new("jobs_database_password", SettingKind::Path, "File with the password of that database; it is read for every connection")
        .or_else("none").flag("jobs-database-password", "FILE").property("jobs_database_password");
    JOBS_KEEP = Setting::new("jobs_keep", SECONDS, "Time that the answer of a job is kept; a job that waits longer for its turn is not run")
        .or("24h").flag("jobs-keep", "TIME").property("jobs_keep");
    JOBS_COUNT = Setting::new("jobs_count", SettingKind::from(1), "Most jobs that are kept, whether they wait or are answered; further ones are rejected with 503")
        .or("100000").flag("jobs-count", "N").property("jobs_count");
    JOBS_SIZE = Setting::new("jobs_size", SettingKind::Size, "Most bytes of requests and answers of jobs that are kept; further ones are rejected with 503")
        .or("1GiB").flag("jobs-size", "SIZE").property("jobs_size");
    JOBS_PARALLEL = Setting::new("jobs_parallel", SettingKind::from(1), "Most jobs that run at a time, behind requests whose clients wait")
        .or("32").flag("jobs-parallel", "N").property("jobs_parallel");
    WEBHOOK_URLS = Setting::new("webhook_urls", SettingKind::Texts, "URLs that jobs may name in the header X-Jitney-Webhook to be told of their end, such as https://hooks.example.com/jobs/ or https://*.example.com; a name leads to a private address only if that, or its network, is listed, too")
        .or_else("none: no webhooks are sent").flag("webhook-urls", "URL,...").property("webhook_urls");
    WEBHOOK_SECRET = Setting::new("webhook_secret", SettingKind::Path, "File with the secret that signs webhooks, whsec_ and at least 24 bytes in base64; with several lines each one signs. It is read for every message")
        .or_else("none").flag("webhook-secret", "FILE").property("webhook_secret");
    DRAIN_DELAY = Setting::new("drain_delay", SECONDS, "On SIGTERM, time between readiness falling and the ports closing, for load balancers to notice")
        .or("0s").flag("drain-delay", "TIME").property("drain_delay");
    DRAIN_TIMEOUT = Setting::new("drain_timeout", SECONDS, "On SIGTERM, time for admitted requests to be answered")
        .or("30s").flag("drain-timeout", "TIME").property("drain_timeout");
    HANDOVER = Setting::new("handover", SettingKind::Path, "Restart without a gap: give the ports at this Unix socket to the next server that is started with the same path, and take them from the one that waits there once the models are loaded")
        .or_else("none").flag("handover", "SOCKET").property("handover");
    HANDOVER_CHECK_MEMORY = Setting::new("handover_check_memory", SettingKind::Flag, "Do not start beside a server whose workers use more memory than is available; both run at once until the ports are handed over")
        .or("true").flag("handover-check-memory", "BOOL").property("handover_check_memory");
}
