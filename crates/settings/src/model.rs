//! The settings of a model.

use crate::setting::settings;
use crate::words::words;
use crate::{Setting, SettingKind, TimeUnit};

const MILLIS: SettingKind = SettingKind::Time(TimeUnit::Millis);
const SECONDS: SettingKind = SettingKind::Time(TimeUnit::WholeSeconds);
const FLAG: SettingKind = SettingKind::Flag;

words! {
    /// When batches of a model are sent.
    PolicyName:
    /// A latency target instead of a window.
    #[default]
    Adaptive = "adaptive",
    /// TorchServe's batch size and delay, the delay counted from the oldest request's arrival.
    Window = "window",
    /// A free worker takes what is there.
    Opportunistic = "opportunistic",
}

words! {
    /// What an item weighs.
    Cost:
    /// All weigh the same.
    #[default]
    Items = "items",
    /// The bytes of its values; a batch takes as long as all of them together.
    Bytes = "bytes",
    /// What the request says (tokens, pixels); a batch takes as long as all of them together.
    Tokens = "tokens",
    /// The length that the request says; a batch takes as long as if all had the longest.
    Length = "length",
}

words! {
    /// Where an ONNX model runs.
    Isolation:
    /// In processes of its own.
    #[default]
    Process = "process",
    /// In threads of the server.
    Thread = "thread",
}

words! {
    /// What runs an ONNX model.
    OnnxEngine:
    /// ONNX Runtime where its library is found, the built-in engine otherwise.
    #[default]
    Auto = "auto",
    /// ONNX Runtime.
    OnnxRuntime = "onnxruntime",
    /// The engine that is part of the program.
    Builtin = "builtin",
}

words! {
    /// When a model is loaded.
    LoadTime:
    /// When the server starts, or when it is registered.
    #[default]
    Start = "start",
    /// When somebody asks for it.
    OnDemand = "on_demand",
}

settings! {
    /// Every setting of a model.
    SETTINGS:
    WORKERS = Setting::new("workers", SettingKind::from(0), "Workers of each model")
        .or_else("what the archive says, else 1")
        .flag("workers", "N").property("default_workers_per_model")
        .archive_clamped(&["minWorkers"], 1).parameter(&["initial_workers"], 0).record("minWorkers").archive_first();
    MIN_WORKERS = Setting::new("min_workers", SettingKind::from(0), "Fewest workers of each model whose number follows the load, up to max_workers; with 0 the first request starts one")
        .or_else("as many as workers").flag("min-workers", "N").archive(&["jitney.min_workers"], 0).parameter(&["min_workers"], 0);
    MAX_WORKERS = Setting::new("max_workers", SettingKind::from(0), "Most workers of each model; more than the fewest means that their number follows the load")
        .or_else("as many as workers").flag("max-workers", "N").parameter(&["max_workers"], 0)
        .archive_clamped(&["maxWorkers"], 0).record("maxWorkers").archive_first();
    IDLE = Setting::new("idle", SECONDS, "Time without a request after which the last worker ends, with min_workers 0, such as 900 or 15m").or("900")
        .flag("idle", "TIME").parameter(&["idle"], 0);
    LOAD = Setting::new("load", SettingKind::Choice(LoadTime::WORDS), "When a model is loaded: start means with the server, on_demand with the first request that asks for it; such a model leaves when others need its memory (see memory)").or("start")
        .flag("load", "WHEN").property("load").parameter(&["load"], 0).record_if_changed("load");
    KEEP = Setting::new("keep", FLAG, "Keep a model in memory once it is loaded, also with load=on_demand").or("false")
        .flag("keep", "BOOL").parameter(&["keep"], 0).record_if_changed("keep");
    MAX_BATCH_SIZE = Setting::new("max_batch_size", SettingKind::Whole { min: 1, max: 65535 }, "Most items in a batch; 1 means no batching")
        .or_else("what the archive says, else 32 for ONNX, else 1").or("1")
        .batching().flag("batch-size", "N").aliases(&["max-batch-size"])
        .archive_clamped(&["batchSize"], 1).live(&["batch_size", "max_batch_size"], 1).record("batchSize");
    SIZES = Setting::new("sizes", SettingKind::Numbers { min: 1 }, "Batch sizes that the model runs at; the adaptive policy chooses among them")
        .or_else("any size")
        .batching().live(&["sizes"], 0).record_if_changed("sizes");
    LENGTHS = Setting::new("lengths", SettingKind::Numbers { min: 1 }, "Lengths that a model runs at whose items are padded (cost: length), such as [32, 64, 128]; an item runs at the next larger one")
        .or_else("the length of the longest item in the batch")
        .batching();
    MAX_LATENCY_MS = Setting::new("max_latency_ms", MILLIS, "Latency target, such as 50 or 50ms; batches grow only as far as it allows, 0 means none")
        .or_else("none")
        .batching().flag("max-latency-ms", "TIME").archive(&[], 1).live(&["max_latency_ms"], 0).record("maxLatencyMs");
    MAX_BATCH_DELAY = Setting::new("max_batch_delay", MILLIS, "TorchServe's window: a batch is sent when it is full or when its oldest request has waited this long")
        .or_else("100 for the policy window").or("100")
        .batching().flag("max-batch-delay-ms", "TIME").aliases(&["max-batch-delay"])
        .archive(&["maxBatchDelay"], 1).live(&["max_batch_delay"], 0).record("maxBatchDelay");
    POLICY = Setting::new("policy", SettingKind::Choice(PolicyName::WORDS), "When batches are sent: adaptive, window or opportunistic")
        .or_else("window if a delay is given and no latency target, else adaptive")
        .batching().flag("policy", "POLICY").property("batching_policy").live(&["policy"], 0).record("policy");
    TENANTS = Setting::new("tenants", SettingKind::Weights, "Weights of tenants, by the names that requests give; others have 1")
        .or_else("none")
        .batching().live(&["tenants"], 0).record_if_changed("tenants");
    COST = Setting::new("cost", SettingKind::Choice(Cost::WORDS), "What an item weighs in a batch: items, bytes, tokens or length")
        .or_else("length for padded ONNX models, else items").or("items")
        .batching();
    MAX_COST = Setting::new("max_cost", SettingKind::Whole { min: 1, max: u64::MAX }, "Most cost in a batch").or_else("no limit").batching();
    SAMPLE_COST = Setting::new("sample_cost", SettingKind::Whole { min: 1, max: u64::MAX }, "What one item of the sample weighs that is measured at the start")
        .or_else("what can be seen of it").batching();
    MIX_ORIGINS = Setting::new("mix_origins", FLAG, "Whether requests over HTTP, gRPC and handles may share a batch")
        .or_else("true under jitney torchserve, else false").or("false").batching();
    MAX_CONCURRENT_BATCHES = Setting::new("max_concurrent_batches", SettingKind::Whole { min: 1, max: 255 }, "Batches that one worker holds at a time; more than 1 runs them side by side")
        .or_else("100 for asynchronous handlers, else 1").batching().archive_clamped(&[], 1);
    QUEUE = Setting::new("queue", SettingKind::from(0), "Requests of a model that may wait; more are rejected with 503").or("100")
        .flag("queue", "N").property("job_queue_size").archive(&["jobQueueSize"], 1).live(&["job_queue_size"], 1).record_if_changed("jobQueueSize");
    TRAFFIC = Setting::new("traffic", SettingKind::Mapping, "How versions of the model share the requests that name none, such as {shares: {1.0: 90, 2.0: 10}, sticky: header:x-user}, and which version is a shadow of them")
        .or_else("none: the default version answers")
        .in_file().parameter(&["traffic"], 0).record_if_changed("traffic");
    CACHE = Setting::new("cache", SettingKind::Mapping, "Answers that are kept for equal requests, which also share runs, such as {entries: 1000, bytes: 64MiB, ttl: 60s, headers: [accept-language], shared: true}; entries 0 means none, and shared lets clients of different keys and tenants have the same answers")
        .or_else("none; of a cache 1000 entries, 64MiB, 60s, no headers, not shared")
        .in_file().archive(&["jitney.cache"], 0).live(&["cache"], 0).record_if_changed("cache");
    RESPONSE_TIMEOUT = Setting::new("response_timeout", SECONDS, "Time a batch may run before its worker is replaced, such as 120 or 2m").or("120")
        .flag("response-timeout", "TIME").property("default_response_timeout")
        .archive(&["responseTimeout"], 1).parameter(&["response_timeout"], 0).record("responseTimeout").archive_first();
    STARTUP_TIMEOUT = Setting::new("startup_timeout", SECONDS, "Time a worker may take to load its model").or("120")
        .flag("startup-timeout", "TIME").property("default_startup_timeout")
        .archive(&["startupTimeout"], 1).parameter(&["startup_timeout"], 0).record("startupTimeout").archive_first();
    STARTUP_WAIT = Setting::new("startup_wait", SECONDS, "Time a request waits while no worker of its model has loaded; then it is told that the model is loading")
        .or_else("30; under jitney torchserve as long as startup_timeout").or("30")
        .flag("startup-wait", "TIME").property("startup_wait").archive(&["startupWait"], 0).parameter(&["startup_wait"], 0);
    ISOLATION = Setting::new("isolation", SettingKind::Choice(Isolation::WORDS), "Where an ONNX model runs: process gives each worker a process of its own, thread a thread of the server, which saves memory and ends with the model").or("process")
        .flag("isolation", "WHERE").property("onnx_isolation").parameter(&["isolation"], 0);
    MEMORY_LIMIT = Setting::new("memory_limit", SettingKind::Size, "Memory that one worker process may use, such as 2GiB; a request that needs more is answered with 507, and a Python worker that keeps more than four fifths of it is replaced")
        .or_else("half of the memory of the machine or its cgroup for ONNX models, none for Python models")
        .flag("memory-limit", "SIZE").property("onnx_memory_limit").parameter(&["memory_limit"], 1).record_if_changed("memoryLimit");
    MAX_REQUESTS_PER_WORKER = Setting::new("max_requests_per_worker", SettingKind::from(1), "Requests after which a worker is replaced; the new one is ready first").or_else("none: workers stay")
        .flag("max-requests-per-worker", "N").property("max_requests_per_worker").parameter(&["max_requests_per_worker"], 1).record_if_changed("maxRequestsPerWorker");
    ONNX_ENGINE = Setting::new("onnx_engine", SettingKind::Choice(OnnxEngine::WORDS), "What runs ONNX models: auto takes ONNX Runtime where its library is found and the built-in engine otherwise, onnxruntime and builtin allow only that one").or("auto")
        .flag("onnx-engine", "ENGINE").property("onnx_engine").parameter(&["onnx_engine"], 0);
    ONNX_LIBRARY = Setting::new("onnx_library", SettingKind::Path, "ONNX Runtime's library, or the directory that it is in")
        .or_else("looked for: ORT_DYLIB_PATH, the onnxruntime package of the Python, what jitney onnx install fetched, the system's")
        .flag("onnx-library", "PATH").property("onnx_library");
    ONNX_THREADS = Setting::new("onnx_threads", SettingKind::Whole { min: 1, max: 1024 }, "Threads that one worker of an ONNX model computes with; those that are threads of the server have one unless this is set").or_else("the processors over the number of its workers")
        .flag("onnx-threads", "N").property("onnx_threads").parameter(&["onnx_threads"], 1);
    ONNX_PROVIDERS = Setting::new("onnx_providers", SettingKind::Text, "ONNX Runtime's execution providers in the order of preference, such as cuda,cpu; the library must have them")
        .or_else("cpu").flag("onnx-providers", "NAMES").property("onnx_providers").parameter(&["onnx_providers"], 0);
    MAX_RETRY_TIMEOUT = Setting::new("max_retry_timeout", SECONDS, "How long a worker that fails is started again before it is given up").or("300")
        .archive(&["maxRetryTimeoutInSec"], 0);
    CLIENT_TIMEOUT = Setting::new("client_timeout", MILLIS, "How long a client waits at most; 0 means without limit").or("0")
        .archive(&["clientTimeoutInMills"], 0);
    USE_JOB_TICKET = Setting::new("use_job_ticket", FLAG, "Accept a request only when a worker is free for it").or("false")
        .archive(&["useJobTicket"], 0);
    SEQUENCE_BATCHING = Setting::new("sequence_batching", FLAG, "Requests of one sequence are run in order and by one worker").or("false")
        .archive(&["sequenceBatching"], 0);
    SEQUENCE_MAX_IDLE = Setting::new("sequence_max_idle", MILLIS, "How long a sequence may be silent; 0 means that there are no sequences").or("0")
        .archive(&["sequenceMaxIdleMSec"], 0);
    SEQUENCE_START_REQUIRED = Setting::new("sequence_start_required", FLAG, "A request of a sequence that the server does not hold has to say that it begins one (ts_request_sequence_start); others are rejected, as behind a load balancer that sent them to the wrong server").or("false")
        .archive(&["sequenceStartRequired"], 0);
    SEQUENCE_TIMEOUT = Setting::new("sequence_timeout", MILLIS, "How long a sequence may last; 0 means without limit").or("0")
        .archive(&["sequenceTimeoutMSec"], 0);
    MAX_SEQUENCE_QUEUE = Setting::new("max_sequence_queue", SettingKind::from(1), "Requests of one sequence that may wait").or("1")
        .archive_clamped(&["maxSequenceJobQueueSize"], 1);
    MAX_SEQUENCES = Setting::new("max_sequences", SettingKind::from(1), "Sequences at a time").or("1")
        .archive_clamped(&["maxNumSequence"], 1);
    CONTINUOUS_BATCHING = Setting::new("continuous_batching", FLAG, "Requests join and leave a batch between its steps").or("false")
        .archive(&["continuousBatching"], 0);
    ASYNC_COMMUNICATION = Setting::new("async_communication", FLAG, "The handler is asynchronous and runs many batches at a time").or("false")
        .archive(&["asyncCommunication"], 0);
    USE_VENV = Setting::new("use_venv", FLAG, "Workers run in a virtual environment of the model's own").or("false")
        .archive(&["useVenv"], 0);
    DEVICE_TYPE = Setting::new("device_type", SettingKind::Choice(&["cpu", "gpu"]), "Where workers run")
        .or_else("gpu where there is one").flag("device-type", "WHERE").archive(&["deviceType"], 0);
    DEVICE_IDS = Setting::new("device_ids", SettingKind::Numbers { min: 0 }, "GPUs that workers are given, in turn")
        .or_else("all").flag("device-ids", "IDS").archive(&["deviceIds"], 0);
    GPU_MEMORY_FRACTION = Setting::new("gpu_memory_fraction", SettingKind::Fraction, "Share of its GPU's memory that one worker may use, such as 0.4; a batch that needs more fails")
        .or_else("no limit").flag("gpu-memory-fraction", "SHARE")
        .archive(&["gpu_memory_fraction", "jitney.gpu_memory_fraction"], 0).parameter(&["gpu_memory_fraction"], 0);
    GPU_TURNS = Setting::new("gpu_turns", FLAG, "Whether the model takes turns on its GPU: models that have this set and share a GPU do not run at the same moment").or("false")
        .flag("gpu-turns", "BOOL").archive(&["gpu_turns", "jitney.gpu_turns"], 0).parameter(&["gpu_turns"], 0);
    CPUS = Setting::new("cpus", SettingKind::Cpus, "Processors that worker processes are kept to: auto gives every worker of a model a share of its own of all that the server may use, a list such as 0-3,8 a share of these; the sets follow the number of workers, and threads the sets").or("none")
        .flag("cpus", "CPUS").archive(&["jitney.cpus"], 0).parameter(&["cpus"], 0).record_if_changed("cpus");
    PARALLEL_TYPE = Setting::new("parallel_type", SettingKind::Choice(&["pp", "tp", "pptp", "custom"]), "How the model is spread over several GPUs")
        .or_else("not at all").archive(&["parallelType"], 0);
    PARALLEL_LEVEL = Setting::new("parallel_level", SettingKind::from(0), "Processes and GPUs of one worker").or("0")
        .archive(&["torchrun.nproc-per-node", "parallelLevel"], 0);
    TRUST = Setting::new("trust", FLAG, "Load models whose files run code when they are loaded: pickles, compiled packages and the like").or("false")
        .flag("trust", "BOOL").bare("true");
    TASK = Setting::new("task", SettingKind::Text, "What a model of several uses is for, such as text-classification")
        .or_else("what the model says").flag("task", "TASK");
    NUM_CPUS = Setting::new("num_cpus", SettingKind::Amount, "Processors of its node that Ray reserves for a worker, where Ray places workers")
        .or("1").ray();
    NUM_GPUS = Setting::new("num_gpus", SettingKind::Amount, "GPUs of its node that Ray reserves for a worker, which sees no others; a part of one shares it")
        .or_else("1 for models whose device is a GPU, else 0").ray();
    RESOURCES = Setting::new("resources", SettingKind::Amounts, "Custom resources that a node must have for a worker to be placed there")
        .or_else("none").ray();
    SHIP = Setting::new("ship", FLAG, "Whether the model and the code of a definition are sent to the nodes; false where they lie under the same paths there")
        .or("true").ray();
}
