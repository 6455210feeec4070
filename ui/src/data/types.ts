// What the server tells: the overview document, its stream, the batcher's report, log lines.
// Totals count since a version was registered; rates are differences of two documents.

export interface Overview {
  time: number;
  server: ServerInfo;
  machine: Machine | null;
  gpus: Gpu[];
  models: Model[];
  sample: Sample;
}

export interface ServerInfo {
  version: string;
  dialect: string;
  startedAt: string;
  uptimeSeconds: number;
  pid: number;
  hostname: string;
  state: string;
  stateText: string;
  tokenNeeded: boolean;
  modelApi: boolean;
  logLevel: string | null;
  requestMemoryBytes: number;
  requestMemoryLimitBytes: number;
  connections: number;
  memoryBytes: number | null;
}

export interface Machine {
  cpuPercent: number | null;
  memoryUsedBytes: number;
  memoryTotalBytes: number;
}

export interface Gpu {
  id: number;
  utilizationPercent: number | null;
  memoryUsedBytes: number;
  memoryTotalBytes: number;
}

export interface Model {
  name: string;
  version: string;
  isDefault: boolean;
  kind: string;
  state: string;
  stateText: string;
  lastError: string | null;
  lastErrorTime: string | null;
  lastExit: string | null;
  lastExitTime?: string | null;
  policy: string;
  maxBatchSize: number;
  maxLatencyMs: number | null;
  maxBatchDelayMs: number | null;
  /** Of definitions: what each endpoint has of its own. */
  endpoints?: Record<string, { maxBatchSize: number | null; maxLatencyMs: number | null }>;
  /** The models that this one calls; a version of null is the default one. */
  dependsOn?: { model: string; version: string | null }[];
  liveSettings: LiveSetting[];
  workersMin: number;
  workersMax: number;
  restarts: number;
  loadFailures: number;
  exits: Counts;
  loadSeconds: number | null;
  workers: Worker[];
  waiting: number;
  queueMax: number;
  running: number;
  totals: Totals;
  rejections: Counts;
  dispatches: Counts;
  batchSizes: BatchSize[];
  queueSeconds: Histogram;
  computeSeconds: Histogram;
  latencySeconds: Histogram;
  predictionRatio: Histogram;
  curve: CurvePoint[];
}

export type Counts = Record<string, number>;

export interface LiveSetting {
  name: string;
  parameter: string;
  value: string | null;
  about: string;
  kind: string;
  choices: string[];
  /** Where the value comes from. */
  source?: string;
}

export interface Worker {
  id: number;
  pid: number | null;
  state: string;
  startedAt: string | null;
  memoryBytes: number | null;
  cpuPercent: number | null;
  gpu: number | null;
  gpuMemoryBytes: number | null;
  progress: { done: number; of: number; what: string } | null;
  restarts: number;
}

export interface Totals {
  requests: number;
  answered: number;
  rejected: number;
  failed: number;
  cancelled: number;
  retried: number;
  late: number;
  batches: number;
  items: number;
  failedBatches: number;
}

export interface BatchSize {
  size: number;
  batches: number;
}

/** `counts[i]` are the values up to `bounds[i]`; the last of them those above all bounds. */
export interface Histogram {
  bounds: number[];
  counts: number[];
  sum: number;
}

export interface CurvePoint {
  size: number;
  ms: number;
  plannedMs: number | null;
  lowMs: number | null;
  samples: number;
}

export interface Sample {
  time: number;
  models: Record<string, ModelSample>;
}

/** Totals, except what waits, who is ready, memory, and the quantiles, which are of the last interval. */
export interface ModelSample {
  requests: number;
  answered: number;
  late: number;
  rejected: number;
  failed: number;
  cancelled: number;
  batches: number;
  items: number;
  waiting: number;
  workersReady: number;
  queueSecondsSum: number;
  computeSecondsSum: number;
  p50Ms: number | null;
  p99Ms: number | null;
  memoryBytes: number | null;
  restarts?: number;
  exits?: number;
  loadFailures?: number;
  rejections?: Counts;
}

export interface PastSamples {
  everySeconds: number;
  samples: Sample[];
}

/** `GET /models/{m}/{v}/batching`. */
export interface BatchingReport {
  how: string;
  policy: string;
  decisions: Decision[];
}

export interface Decision {
  agoMs: number;
  verdict: string;
  reason?: string;
  size: number;
  words: string;
}

/** One version of `GET /models/{m}/{v}/statistics`. */
export interface Statistics {
  sizes: SizeStatistics[];
}

export interface SizeStatistics {
  size: number;
  answeredBatches: number;
  computeSecondsSum: number;
}

export interface LogLine {
  time: string;
  level: string;
  target: string;
  message: string;
  fields: Record<string, unknown>;
}

export interface LogPage {
  lines: LogLine[];
  dropped: number;
}

export function keyOf(model: { name: string; version: string }): string {
  return `${model.name}/${model.version}`;
}
