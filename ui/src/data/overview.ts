// Made from crates/telemetry/src/overview by `UPDATE_GENERATED=1 cargo test -p jitney-telemetry typescript`; not to be edited.

/** The runs of a worker's garbage collector. */
export type CollectorOverview = {
  /** How many there were. */
  runs: number;
  /** How long all of them have paused the worker. */
  seconds: number;
  /** The longest of them. */
  longestSeconds: number;
};

/** One size of the learned curve, and the band in which batches are expected. */
export type CurveEntry = {
  /** In items. */
  size: number;
  /** Usually. */
  ms: number;
  /** What deadlines are planned with: a safe quantile. */
  plannedMs: number;
  /** As far below the mean as the planned time is above it. */
  lowMs: number;
  /** How often it was measured. */
  samples: number;
};

/** A histogram: as many counts as bounds, and one for what is above the last. */
export type DistributionEntry = {
  /** Ascending. */
  bounds: Array<number>;
  /** How many were up to each bound. */
  counts: Array<number>;
  /** Of all values. */
  sum: number;
};

/** An endpoint of a definition: what is its own, where its model's does not hold. */
export type EndpointOverview = {
  /** Its largest batch; null if it takes one item at a time. */
  maxBatchSize: number | null;
  /** The latency it keeps; null for none. */
  maxLatencyMs: number | null;
};

/** A GPU; null is what it does not tell. */
export type GpuOverview = {
  /** Its number. */
  id: number;
  /** How busy it is. */
  utilizationPercent: number | null;
  /** In use. */
  memoryUsedBytes: number | null;
  /** All there is. */
  memoryTotalBytes: number | null;
};

/** Jobs by how far they are, and what became of jobs since the server began. */
export type JobsOverview = {
  /** They wait for their turn. */
  queued: number;
  /** They are being answered. */
  running: number;
  /** Their answers are kept. */
  succeeded: number;
  /** The same of those that were answered with an error, or cancelled. */
  failed: number;
  /** What is kept of all of them. */
  bytes: number;
  /** How long the oldest one has waited; null if none waits. */
  oldestSeconds: number | null;
  /** Kept since the server began. */
  submittedTotal: number;
  /** Answered since then. */
  succeededTotal: number;
  /** Answered with an error, or cancelled, since then. */
  failedTotal: number;
  /** Answers that were forgotten because their time was over. */
  expiredTotal: number;
  /** Webhooks that were delivered since the server began. */
  webhooksDeliveredTotal: number;
  /** Attempts to send a webhook after which there is another one. */
  webhooksAgainTotal: number;
  /** Webhooks that are not sent any more. */
  webhooksFailedTotal: number;
};

/** A model of it. */
export type ListedModelView = {
  /** Its name. */
  name: string;
  /** The version that answers, or the one that is asked for. */
  version: string | null;
  /** `loaded`, `loading` or `failed`. */
  state: string;
  /** Why it could not be loaded. */
  reason: string | null;
};

/** A setting with its value. */
export type LiveSetting = {
  /** The setting. */
  name: string;
  /** The parameter that changes it. */
  parameter: string;
  /** As it would be typed; empty where there is none. */
  value: string;
  /** A sentence without a full stop. */
  about: string;
  /** `whole`, `time`, `size`, `flag`, `choice` or `text`. */
  kind: string;
  /** The words that it can be, if it is a choice. */
  choices: Array<string>;
  /** Where the value comes from. */
  source: string;
};

/** The machine. */
export type MachineOverview = {
  /** Of all processors together; null where two looks are needed and there was one. */
  cpuPercent: number | null;
  /** In use. */
  memoryUsedBytes: number;
  /** All there is. */
  memoryTotalBytes: number;
  /** Its processors; 0 where that is not known. */
  processors: number;
  /** What is free on its root file system. */
  diskFreeBytes: number | null;
  /** What that file system holds at most. */
  diskTotalBytes: number | null;
};

/** A model as another one's document names it. */
export type ModelLink = {
  /** Its name. */
  model: string;
  /** None for whichever answers by default. */
  version: string | null;
};

/** A version of a model. */
export type ModelOverview = {
  /** The model. */
  name: string;
  /** The version. */
  version: string;
  /** Whether requests that name no version get it. */
  isDefault: boolean;
  /** Its share of the requests that name no version, from 0 to 1; null where versions do not share them. */
  share: number | null;
  /** Why its share was taken away, where the server did that. */
  returned: string | null;
  /** The share of requests of which it gets copies, from 0 to 1; null where it is no shadow. */
  shadowShare: number | null;
  /** Copies that it got as a shadow: `same`, `different`, `failed`, `dropped`, `uncompared`; absent where it got none. */
  shadowCopies?: { [key in string]: number };
  /** `python`, `onnx`, `definition` or `workflow-function`. */
  kind: string;
  /** `ready`, `loading`, `failed`, `degraded`, `noWorkers`, `known`, `leaving` or `ending`. */
  state: string;
  /** The same as a sentence. */
  stateText: string;
  /** The last error of a worker or of a request. */
  lastError: string | null;
  /** When it was. */
  lastErrorTime: string | null;
  /** How the last worker's process that ended by itself did. */
  lastExit: string | null;
  /** When that was. */
  lastExitTime: string | null;
  /** When batches are sent. */
  policy: string;
  /** Most items in a batch. */
  maxBatchSize: number;
  /** The latency target. */
  maxLatencyMs: number | null;
  /** How long a request waits for others at most. */
  maxBatchDelayMs: number | null;
  /** Of definitions. */
  endpoints: { [key in string]: EndpointOverview };
  /** The models that it calls. */
  dependsOn?: Array<ModelLink>;
  /** Settings that may change while it runs. */
  liveSettings: Array<LiveSetting>;
  /** Fewest workers. */
  workersMin: number;
  /** Most workers. */
  workersMax: number;
  /** Why it has as many workers as it has, where their number follows the load. */
  capacity: string | null;
  /** What one of them may use (`memory_limit`), where that is set. */
  memoryLimitBytes: number | null;
  /** Since the registration. */
  restarts: number;
  /** Loads that failed. */
  loadFailures: number;
  /** Exits of workers that had loaded, by kind. */
  exits: { [key in string]: number };
  /** How long the last load took. */
  loadSeconds: number | null;
  /** Its workers. */
  workers: Array<WorkerOverview>;
  /** Requests in the queue. */
  waiting: number;
  /** The most that may wait. */
  queueMax: number;
  /** Requests that are with a worker. */
  running: number;
  /** What it counted. */
  totals: VersionTotals;
  /** Rejected requests by reason. */
  rejections: { [key in string]: number };
  /** Batches by reason. */
  dispatches: { [key in string]: number };
  /** How many batches had which size. */
  batchSizes: Array<SizeCount>;
  /** Time in the queue. */
  queueSeconds: DistributionEntry;
  /** Time of batches in workers. */
  computeSeconds: DistributionEntry;
  /** Time from arrival to answer. */
  latencySeconds: DistributionEntry;
  /** Measured time over predicted time. */
  predictionRatio: DistributionEntry;
  /** What batches of a size take. */
  curve: Array<CurveEntry>;
};

/** One model version in it. */
export type ModelSample = {
  /** All requests. */
  requests: number;
  /** Answered. */
  answered: number;
  /** Answered after its objective or deadline. */
  late: number;
  /** Rejected. */
  rejected: number;
  /** Failed. */
  failed: number;
  /** Cancelled by the client. */
  cancelled: number;
  /** Batches. */
  batches: number;
  /** Items in them. */
  items: number;
  /** Requests in the queue now. */
  waiting: number;
  /** Workers that answer now. */
  workersReady: number;
  /** Time in the queue, all requests together. */
  queueSecondsSum: number;
  /** Time of all batches in workers. */
  computeSecondsSum: number;
  /** Since the sample before: half of the requests took no longer. */
  p50Ms: number | null;
  /** The same for all but one in ten. */
  p90Ms: number | null;
  /** The same for all but one in a hundred. */
  p99Ms: number | null;
  /** The same for all but one in a thousand. */
  p999Ms: number | null;
  /** Since the sample before: how many answers took up to 1 ms, 2 ms, 4 ms and so on. */
  latencyClasses?: Array<number>;
  /** Since the sample before: how many batches had up to 1, 2, 4 items and so on. */
  sizeClasses?: Array<number>;
  /** Resident memory of its workers now. */
  memoryBytes: number;
  /** Workers that were started again. */
  restarts: number;
  /** Workers that had loaded and ended. */
  exits: number;
  /** Loads that failed. */
  loadFailures: number;
  /** How often its settings were seen to change. */
  settingChanges: number;
  /** Only those that there were. */
  rejections: { [key in string]: number };
};

/** The answer to `GET /overview`. Counts are totals, so that clients make rates of them. */
export type OverviewDocument = {
  /** Milliseconds of Unix time. */
  time: number;
  /** The server itself. */
  server: ServerOverview;
  /** Null until it was measured. */
  machine: MachineOverview | null;
  /** Its GPUs. */
  gpus: Array<GpuOverview>;
  /** Every version of every model. */
  models: Array<ModelOverview>;
  /** The shared list that models come from; absent if there is none. */
  registrations?: RegistrationsView;
  /** The requests that are answered later; absent before the first one. */
  jobs?: JobsOverview;
  /** The last of the samples; null before the first. */
  sample: OverviewSample | null;
  /** What is wrong, the worst first. */
  problems: Array<ServerProblem>;
};

/** The samples that a stream begins with. */
export type OverviewHistory = {
  /** The time between two of them. */
  everySeconds: number;
  /** Oldest first. */
  samples: Array<OverviewSample>;
};

/** One sample. */
export type OverviewSample = {
  /** Milliseconds of Unix time. */
  time: number;
  /** By `name/version`. */
  models: { [key in string]: ModelSample };
};

/** How bad a problem is; the worst first. */
export type ProblemTone = "bad" | "warn" | "note";

/** What became of the list. */
export type RegistrationsView = {
  /** Where it is, as it may be shown. */
  source: string;
  /** The content that is in force; the same on servers that follow the same list. Null before the first. */
  revision: string | null;
  /** Whether all models of it were loaded once. */
  settled: boolean;
  /** When it was last read. */
  readAt: string | null;
  /** Why the last look could not read it, or what is wrong with it. */
  error: string | null;
  /** In its order. */
  models: Array<ListedModelView>;
};

/** The server itself. */
export type ServerOverview = {
  /** Of the program. */
  version: string;
  /** `jitney` or `torchserve`. */
  dialect: string;
  /** When it began. */
  startedAt: string;
  /** Since its start. */
  uptimeSeconds: number;
  /** Its process. */
  pid: number;
  /** Its machine. */
  hostname: string;
  /** `ready`, `loading`, `degraded` or `draining`. */
  state: string;
  /** The same as a sentence. */
  stateText: string;
  /** Whether clients need a token. */
  tokenNeeded: boolean;
  /** Whether models can be registered and unregistered over the network. */
  modelApi: boolean;
  /** What it logs. */
  logLevel: string | null;
  /** Held by requests. */
  requestMemoryBytes: number;
  /** The most that requests may hold. */
  requestMemoryLimitBytes: number;
  /** Open connections. */
  connections: number;
  /** Resident memory of the server without its workers. */
  memoryBytes: number | null;
  /** Percent of one processor that it uses without its workers. */
  cpuPercent: number | null;
};

/** A problem that an operator can do something about. */
export type ServerProblem = {
  /** How bad it is. */
  tone: ProblemTone;
  /** `name/version`; null for the server or the machine. */
  model: string | null;
  /** What stands beside the word for the state, such as `rejecting`; empty where the state says it. */
  word: string;
  /** What is wrong. */
  what: string;
  /** What to do about it, or where to look. */
  advice: string;
  /** A version that is ready, and may be the default one until this is mended. */
  rollBackTo: string | null;
  /** Whether more workers help. */
  moreWorkersHelp: boolean;
};

/** How many batches had this size; the largest of several sizes that are counted together. */
export type SizeCount = {
  /** In items. */
  size: number;
  /** Batches. */
  batches: number;
  /** Those that were answered. */
  answered: number;
  /** How long those ran, all together. */
  computeSeconds: number;
};

/** What was counted since the version was registered. */
export type VersionTotals = {
  /** All requests. */
  requests: number;
  /** Answered. */
  answered: number;
  /** Rejected. */
  rejected: number;
  /** Failed. */
  failed: number;
  /** Cancelled by the client. */
  cancelled: number;
  /** Run again after a failure. */
  retried: number;
  /** Answered after its objective or deadline. */
  late: number;
  /** Batches. */
  batches: number;
  /** Items in them. */
  items: number;
  /** Batches that failed. */
  failedBatches: number;
};

/** A worker. */
export type WorkerOverview = {
  /** Its number. */
  id: number;
  /** None for a worker that is a thread of the server. */
  pid: number | null;
  /** `ready` or `loading`. */
  state: string;
  /** When it was started. */
  startedAt: string;
  /** None where it is not known, as for threads, and for the first two seconds. */
  memoryBytes: number | null;
  /** Percent of one processor. */
  cpuPercent: number | null;
  /** Percent of the time in which it was ready to run and others had the processors, its threads together. */
  cpuWaitPercent: number | null;
  /** The GPU it was given. */
  gpu: number | null;
  /** The processors that it is kept to, such as `0-3,8`. */
  cpus: string | null;
  /** What it has of the GPU's memory. */
  gpuMemoryBytes: number | null;
  /** How far it is with loading and warming up. */
  progress: WorkerProgress | null;
  /** How often it was started again. */
  restarts: number;
  /** What its garbage collector has done since the model was loaded; none before a worker of Python says so. */
  garbageCollection: CollectorOverview | null;
};

/** How far a worker is with loading and warming up. */
export type WorkerProgress = {
  /** Steps that are done. */
  done: number;
  /** All steps; 0 where that is unknown. */
  of: number;
  /** What is being done. */
  what: string;
};
