// What the server tells: the overview document, its stream, the batcher's report, log lines.
// Totals count since a version was registered; rates are differences of two documents.

// The types of the overview are made from the server's, see overview.ts.

export type {
  CurveEntry as CurvePoint,
  DistributionEntry as Histogram,
  GpuOverview as Gpu,
  LiveSetting,
  MachineOverview as Machine,
  ModelOverview as Model,
  ModelSample,
  OverviewDocument as Overview,
  OverviewHistory as PastSamples,
  OverviewSample as Sample,
  ServerProblem as Problem,
  RegistrationsView as Registrations,
  ServerOverview as ServerInfo,
  SizeCount as BatchSize,
  VersionTotals as Totals,
  WorkerOverview as Worker,
} from "./overview";

export type Counts = Record<string, number>;

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

/** `GET /models/{m}/{v}/requests`. */
export interface NotedReport {
  failed: NotedRequest[];
  slow: NotedRequest[];
}

export interface NotedRequest {
  id: string;
  time: string;
  path: string;
  headers: [string, string][];
  hasBody?: boolean;
  latencyMs: number;
  queueMs?: number;
  computeMs?: number;
  batchItems?: number;
  reason?: string;
  attempt?: number;
  error?: string;
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
