// Documents for tests: as little as the code reads.

import type { Histogram, Model, ModelSample, Overview, Worker } from "../src/data/types";
import { keyOf } from "../src/data/types";
import { History } from "../src/data/history";

export const nothing = (): Histogram => ({ bounds: [0.01, 0.1, 1], counts: [0, 0, 0, 0], sum: 0 });

export function worker(id: number, change: Partial<Worker> = {}): Worker {
  return { id, pid: id, state: "ready", startedAt: "", memoryBytes: 4e8, cpuPercent: null, cpuWaitPercent: null, gpu: null, gpuMemoryBytes: null, cpus: null, progress: null, restarts: 0, garbageCollection: null, ...change };
}

export function model(change: Partial<Model> = {}): Model {
  return {
    name: "m", version: "1.0", isDefault: true, share: null, returned: null, shadowShare: null, kind: "python", state: "ready", stateText: "1 worker is ready.",
    lastError: null, lastErrorTime: null, lastExit: null, lastExitTime: null, policy: "adaptive", maxBatchSize: 8,
    maxLatencyMs: 50, maxBatchDelayMs: null, endpoints: {}, liveSettings: [], workersMin: 1, workersMax: 1, capacity: null, memoryLimitBytes: null, restarts: 0, loadFailures: 0,
    exits: {}, loadSeconds: null, workers: [worker(9000)], waiting: 0, queueMax: 100, running: 0,
    totals: { requests: 0, answered: 0, rejected: 0, failed: 0, cancelled: 0, retried: 0, late: 0, batches: 0, items: 0, failedBatches: 0 },
    rejections: {}, dispatches: {}, batchSizes: [], queueSeconds: nothing(), computeSeconds: nothing(),
    latencySeconds: nothing(), predictionRatio: nothing(), curve: [], ...change,
  };
}

export function sample(change: Partial<ModelSample> = {}): ModelSample {
  return {
    requests: 0, answered: 0, late: 0, rejected: 0, failed: 0, cancelled: 0, batches: 0, items: 0, waiting: 0, workersReady: 1,
    queueSecondsSum: 0, computeSecondsSum: 0, p50Ms: null, p90Ms: null, p99Ms: null, p999Ms: null, memoryBytes: 4e8, restarts: 0, exits: 0, loadFailures: 0, settingChanges: 0, rejections: {}, ...change,
  };
}

export function document(time: number, models: Model[], samples: Record<string, ModelSample> = {}): Overview {
  return {
    time,
    server: {
      version: "0.1.0", dialect: "jitney", startedAt: "", uptimeSeconds: 1, pid: 1, hostname: "h", state: "ready", stateText: "",
      tokenNeeded: false, modelApi: true, logLevel: "info", requestMemoryBytes: 0, requestMemoryLimitBytes: 0, connections: 0, memoryBytes: null, cpuPercent: null,
    },
    machine: { cpuPercent: 1, memoryUsedBytes: 1e9, memoryTotalBytes: 64e9, processors: 8, diskFreeBytes: null, diskTotalBytes: null },
    gpus: [],
    models,
    sample: { time, models: { ...Object.fromEntries(models.map((it) => [keyOf(it), sample()])), ...samples } },
    problems: [],
  };
}

/** A history of documents, one a second; the last of them comes with it. */
export function played(seconds: number, at: (second: number) => { model: Model; sample: ModelSample }): [Overview, History] {
  const history = new History();
  let last = document(0, []);
  for (let second = 0; second <= seconds; second++) {
    const now = at(second);
    last = document(1_000_000 + second * 1000, [now.model], { [keyOf(now.model)]: now.sample });
    history.add(last);
  }
  return [last, history];
}
