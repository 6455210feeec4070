// What is wrong now, in words: the headline. Only what an operator can act on, the worst first.

import { bytes, count, duration, millis, percent, plural, rate, times } from "./format";
import { difference, grown, most, quantile, total } from "./histogram";
import type { History } from "./history";
import { recent } from "./history";
import { leaking } from "./leak";
import type { About, Problem } from "./problem";
import type { Model, Overview } from "./types";
import { keyOf } from "./types";
import { errorLine, REJECTIONS } from "./words";

const RECENT_SECONDS = 30;
const RESTART_SECONDS = 300;
const REJECTED_SHARE = 0.01;
const FAILED_SHARE = 0.01;
const ERROR_FRESH_MS = 120_000;
const LATE_SHARE = 0.05;

export function problems(document: Overview, history: History): Problem[] {
  const found = [...ofServer(document), ...document.models.flatMap((model) => ofModel(model, document, history))];
  const order = { bad: 0, warn: 1, note: 2 };
  return found.sort((one, other) => order[one.tone] - order[other.tone]);
}

function ofServer({ server, machine, gpus }: Overview): Problem[] {
  const found: Problem[] = [];
  const say = (tone: Problem["tone"], what: string, advice: string) => found.push({ tone, model: null, what, advice });
  if (server.state === "draining") {
    say("warn", "The server is shutting down: new requests are rejected.", "It ends when the requests that wait are answered.");
  }
  const held = server.requestMemoryLimitBytes ? server.requestMemoryBytes / server.requestMemoryLimitBytes : 0;
  if (held > 0.8) {
    say(
      "warn",
      `Requests and answers hold ${bytes(server.requestMemoryBytes)} of the ${bytes(server.requestMemoryLimitBytes)} that are allowed.`,
      "Slow clients or large bodies: new requests are rejected when it is full (max_request_memory).",
    );
  }
  const used = machine ? machine.memoryUsedBytes / machine.memoryTotalBytes : 0;
  if (machine && used > 0.92) {
    say(
      used > 0.97 ? "bad" : "warn",
      `The machine's memory is ${percent(used)} full: ${bytes(machine.memoryTotalBytes - machine.memoryUsedBytes)} are left.`,
      "The kernel may kill workers. See which of them grows, or run fewer workers.",
    );
  }
  for (const gpu of gpus) {
    const share = gpu.memoryTotalBytes ? (gpu.memoryUsedBytes ?? 0) / gpu.memoryTotalBytes : 0;
    if (share > 0.97) {
      say("note", `The memory of GPU ${gpu.id} is ${percent(share)} full.`, "A larger batch or one more worker may not fit.");
    }
  }
  return found;
}

function ofModel(model: Model, document: Overview, history: History): Problem[] {
  const key = keyOf(model);
  const name = `${model.name} ${model.version}`;
  const found: Problem[] = [];
  const say = (tone: Problem["tone"], what: string, advice: string) => found.push({ tone, model: key, what, advice });
  const error = model.lastError ? errorLine(model.lastError) : "";
  const ready = model.workers.filter((it) => it.state === "ready").length;

  if (model.state === "failed") {
    const tried = model.loadFailures > 1 ? ` It was tried ${times(model.loadFailures)}.` : "";
    say("bad", `${name}: could not load${error ? `: ${error}` : ""}`, otherVersion(model, document) || `Nothing is served.${tried} Read the log, correct the model, and register it again.`);
  } else if (model.state === "noWorkers" && model.workersMin === 0) {
    say("warn", `${name} has no workers: every request is rejected.`, "Scale it to one worker or more.");
  } else if (model.state === "noWorkers") {
    say("bad", `${name} has no worker that is ready${error ? `: ${error}` : ""}`, "Requests wait or are rejected until one has loaded. The log says why.");
  } else if (model.state === "loading" && model.restarts > 0 && model.lastExit) {
    say("bad", `${name} has no worker that is ready; the last one was lost: ${model.lastExit}`, "Requests wait or are rejected until one has loaded. The log has its last lines.");
  } else if (model.state === "degraded" && model.loadFailures > 0 && error) {
    say("warn", `${name}: ${ready} of ${model.workersMin} workers ready; the last one could not load: ${error}`, "Read the log; it is tried again.");
  }
  const restarts = restarted(model, document, history);
  if (restarts) found.push({ ...restarts, advice: (restarts.tone === "bad" && otherVersion(model, document)) || restarts.advice, model: key });

  const now = recent(history.samples, key, RECENT_SECONDS);
  if (now && now.requests + now.rejected > 0) {
    const asked = Math.max(now.requests, now.answered + now.rejected + now.failed);
    const rejected = now.rejected / asked;
    if (rejected > REJECTED_SHARE && model.state !== "failed" && !(model.state === "noWorkers" && model.workersMin === 0)) {
      const reason = most(grown(model.rejections, history.modelBefore(key, RECENT_SECONDS)?.rejections)) ?? most(model.rejections);
      const why = reason ? `: ${REJECTIONS[reason] ?? reason}` : "";
      const severe = rejected > 0.1 ? "bad" : "warn";
      say(severe, `${name}: rejecting ${percent(rejected)} of requests (${rate(now.rejected / now.seconds)} per second)${why}`, rejectionAdvice(reason, document));
    }
    const failed = now.failed / asked;
    if (failed > FAILED_SHARE && model.state !== "failed") {
      const fresh = error && document.time - Date.parse(model.lastErrorTime ?? "") < ERROR_FRESH_MS;
      say(
        failed > 0.1 ? "bad" : "warn",
        `${name}: ${percent(failed)} of requests fail${fresh ? `. Last error: ${error}` : ""}`,
        "The model or its worker fails on them. The log has the traceback and the request's id.",
      );
    }
    const late = now.answered ? now.late / now.answered : 0;
    if (late > LATE_SHARE) {
      const target = model.maxLatencyMs === null ? "their deadline" : millis(model.maxLatencyMs);
      say("warn", `${name}: ${percent(late)} of the answers come later than ${target}`, busy(document) ?? "More workers, a smaller batch, or a latency that the model can keep.");
    }
  }
  if (model.queueMax > 4 && model.waiting >= model.queueMax * 0.8 && !found.some((it) => it.what.includes("rejecting"))) {
    say("warn", `${name}: ${count(model.waiting)} requests wait, and ${count(model.queueMax)} may.`, "When the queue is full, requests are rejected.");
  }
  const leak = leaking(model, document, history);
  if (leak) found.push({ ...leak, model: key });
  const surprise = surprised(model, history);
  if (surprise) found.push({ ...surprise, model: key });
  return found;
}

/** The quickest help against a bad deploy: another version that is ready. */
function otherVersion(model: Model, document: Overview): string {
  const other = document.models.find((it) => it.name === model.name && it.version !== model.version && it.state === "ready");
  return other && model.isDefault ? `Version ${other.version} is ready: make it the default for now, then correct this one.` : "";
}

/** More workers help only where the processors have room for them. */
function busy({ machine, gpus }: Overview): string | null {
  const cpu = machine?.cpuPercent ?? 0;
  return gpus.length === 0 && cpu > 95 ? `The processors are ${percent(cpu / 100)} busy: more workers would not help. Send less, or add a machine.` : null;
}

function rejectionAdvice(reason: string | null, document: Overview): string {
  switch (reason) {
    case "queue_full":
    case "overload":
    case "hopeless":
    case "expired":
      return busy(document) ?? "Send less, or add workers if the machine has room; the rest is answered in time.";
    case "no_worker":
      return "Scale it up, or see in the log why no worker starts.";
    case "too_large":
    case "bad_input":
      return "The clients send something wrong: the log has examples.";
    case "poison":
      return "Some requests make workers exit. Their ids are in the log.";
    case "crowded":
      return "Bodies and answers in flight hold all the memory that is allowed: max_request_memory.";
    default:
      return "See rejections by reason.";
  }
}

function restarted(model: Model, document: Overview, history: History): About | null {
  const key = keyOf(model);
  const counted = history.samples.filter((it) => it.models[key]?.restarts !== undefined);
  const past = recent(counted, key, RESTART_SECONDS);
  const earlier = history.modelBefore(key, RESTART_SECONDS);
  const first = counted[0]?.time ?? 0;
  // A version that came within this time: all of its restarts did.
  const young = history.samples.some((it) => it.time < first && it.time >= document.time - RESTART_SECONDS * 1000);
  const fell = Math.max(past?.restarts ?? 0, earlier ? model.restarts - earlier.restarts : 0, young ? model.restarts : 0);
  if (fell <= 0 || model.state === "failed") return null;
  const guilty = model.workers.filter((it) => it.restarts > 0);
  const why = model.lastExit ? `: ${model.lastExit}` : model.lastError ? `: ${errorLine(model.lastError)}` : "";
  const [only] = guilty;
  const who = only && guilty.length === 1 ? `worker ${only.id} of ${model.name} ${model.version} has` : `workers of ${model.name} ${model.version} have`;
  const within = past && past.seconds < RESTART_SECONDS - 15 ? duration(past.seconds) : "5 minutes";
  const what = `${who[0]?.toUpperCase()}${who.slice(1)} been restarted ${times(fell)} in ${within}${why}`;
  if (fell < 3) return { tone: "warn", what, advice: "One exit can be chance. The log has its last lines." };
  return { tone: "bad", what, advice: "It exits again and again. Read its last lines in the log; a new version may be the reason." };
}

/** Batches that take much longer than planned: the model has become slower, or the machine is busy. */
function surprised(model: Model, history: History): About | null {
  const earlier = history.modelBefore(keyOf(model), RECENT_SECONDS);
  if (!earlier) return null;
  const ratios = difference(model.predictionRatio, earlier.predictionRatio);
  const middle = quantile(ratios, 0.5);
  if (total(ratios) < 50 || middle === null || middle < 2) return null;
  return {
    tone: "note",
    what: `${model.name} ${model.version}: batches take ${rate(middle)} times as long as predicted`,
    advice: "The model has become slower, or something else uses the machine. The curve is being learned anew.",
  };
}

/** One sentence when nothing is wrong. */
export function allWell(document: Overview, history: History): string {
  const models = document.models;
  if (models.length === 0) return "No model is registered.";
  const loading = models.filter((it) => it.state === "loading");
  if (loading.length > 0) return `${loading.map((it) => `${it.name} ${it.version}`).join(", ")} ${loading.length === 1 ? "is" : "are"} loading.`;
  let answered = 0;
  for (const model of models) {
    const now = recent(history.samples, keyOf(model), 10);
    if (now) answered += now.answered / now.seconds;
  }
  const ready = models.length === 1 ? "The model is ready" : `All ${plural(models.length, "model")} are ready`;
  return answered > 0 ? `${ready} and answering ${rate(answered)} requests a second.` : `${ready}; there is no traffic.`;
}
