// What the server's short words mean, in sentences.

export const REJECTIONS: Record<string, string> = {
  queue_full: "the queue is full: the offered load is more than the workers can serve",
  overload: "serving them would make others late: the offered load is more than the workers can serve",
  hopeless: "they could not be answered in time: the workers are busy for longer than their deadline",
  expired: "their deadline passed while they waited",
  quota: "their tenant has more than its share of the queue",
  no_worker: "there is no worker",
  not_loaded: "no worker could load the model",
  draining: "the model or the server is shutting down",
  too_large: "they are larger than the largest batch",
  crowded: "the memory for requests is used up",
  bad_input: "their input is not what the model takes",
  poison: "they made workers exit before",
};

export const REJECTION_LABELS: Record<string, string> = {
  queue_full: "queue full",
  overload: "overload",
  hopeless: "would be late",
  expired: "deadline passed",
  quota: "tenant over its share",
  no_worker: "no worker",
  not_loaded: "not loaded",
  draining: "shutting down",
  too_large: "too large",
  crowded: "no request memory",
  bad_input: "bad input",
  poison: "kills workers",
};

export const DISPATCHES: Record<string, string> = {
  full: "no more fit, or more would have been late",
  idle: "a worker was free and waiting did not pay",
  window: "the oldest request had waited the whole delay",
  deadline: "later, a request would have been late",
  everyone: "all expected requests had come",
  drain: "the model was shutting down",
  retry: "part of a batch that failed, sent again",
};

export const EXITS: Record<string, string> = {
  exited: "ended by itself",
  crashed: "ended by itself",
  killed: "killed by a signal",
  timed_out: "did not answer in time",
  broke_protocol: "sent something that is not an answer",
  out_of_memory: "out of memory",
};

export interface StateWords {
  mark: string;
  label: string;
  tone: Tone;
}

export type Tone = "good" | "note" | "warn" | "bad" | "quiet";

const STATES: Record<string, StateWords> = {
  ready: { mark: "●", label: "ready", tone: "good" },
  loading: { mark: "◐", label: "loading", tone: "note" },
  degraded: { mark: "▲", label: "degraded", tone: "warn" },
  failed: { mark: "✕", label: "failed", tone: "bad" },
  noWorkers: { mark: "○", label: "no workers", tone: "warn" },
  known: { mark: "○", label: "known, not loaded", tone: "quiet" },
  leaving: { mark: "◌", label: "leaving", tone: "quiet" },
  ending: { mark: "◌", label: "ending", tone: "quiet" },
  draining: { mark: "◌", label: "shutting down", tone: "warn" },
};

export function stateWords(state: string): StateWords {
  return STATES[state] ?? { mark: "?", label: state, tone: "note" };
}
