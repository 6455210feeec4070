import assert from "node:assert/strict";
import { test } from "node:test";
import { growth } from "../src/data/leak";
import { allWell, problems } from "../src/data/problems";
import { model, played, sample, worker } from "./make";

function said(...[document, history]: ReturnType<typeof played>): string[] {
  return problems(document, history).map((it) => `${it.tone}: ${it.what}`);
}

test("nothing is said while all is well", () => {
  const [document, history] = played(20, (second) => ({ model: model(), sample: sample({ requests: second * 9, answered: second * 9 }) }));
  assert.deepEqual(problems(document, history), []);
  assert.equal(allWell(document, history), "The model is ready and answering 9 requests a second.");
});

test("a failed load is told with the line that names its cause", () => {
  const lastError = "Traceback (most recent call last):\n  File \"m.py\", line 1\nModuleNotFoundError: No module named 'nosuchpkg'\n";
  const failed = model({ name: "bert", state: "failed", workers: [], lastError });
  assert.deepEqual(said(...played(3, () => ({ model: failed, sample: sample() }))), [
    "bad: bert 1.0: could not load: ModuleNotFoundError: No module named 'nosuchpkg'",
  ]);
});

test("against a bad deploy another version that is ready is the first advice", () => {
  const [document, history] = played(3, () => ({ model: model({ version: "2.0", state: "failed", workers: [] }), sample: sample() }));
  document.models.push(model({ version: "1.0", isDefault: false }));
  assert.equal(problems(document, history)[0]?.advice, "Version 1.0 is ready: make it the default for now, then correct this one.");
});

test("overload is told with its share and its reason", () => {
  const found = played(30, (second) => ({
    model: model({ name: "resnet", rejections: { bad_input: 3, queue_full: second * 40 } }),
    sample: sample({ requests: second * 100, answered: second * 60, rejected: second * 40 }),
  }));
  assert.deepEqual(said(...found), [
    "bad: resnet 1.0: rejecting 40 % of requests (40 per second): the queue is full: the offered load is more than the workers can serve",
  ]);
});

test("a crash loop is told with the worker, how often, and how it ended", () => {
  const found = played(290, (second) => {
    const restarts = Math.floor(second / 40);
    return {
      model: model({ restarts, lastExit: restarts ? "killed by signal 9 (out of memory?)" : null, workers: [worker(9000, { restarts, pid: restarts })] }),
      sample: sample({ restarts, requests: second, answered: second }),
    };
  });
  assert.deepEqual(said(...found), ["bad: Worker 9000 of m 1.0 has been restarted 7 times in 5 minutes: killed by signal 9 (out of memory?)"]);
});

test("restarts from before the page was opened are told too", () => {
  const [document, history] = played(1, () => ({ model: model({ restarts: 4, lastExit: "exit code 1" }), sample: sample({ restarts: 4 }) }));
  history.past(Array.from({ length: 60 }, (_, at) => ({ time: 1_000_000 - (60 - at) * 2000, models: { "m/1.0": sample({ restarts: Math.floor(at / 15) }) } })));
  assert.deepEqual(said(document, history), ["bad: Workers of m 1.0 have been restarted 4 times in 2 min: exit code 1"]);
});

test("memory that only grows is a leak, caches that fill once are none", () => {
  const leak = (second: number): number => 3e8 + (second * 12e6) / 60;
  const found = played(120, (second) => ({ model: model({ workers: [worker(9000), worker(9001, { memoryBytes: leak(second) })] }), sample: sample() }));
  assert.deepEqual(said(...found), ["warn: Worker 9001 of m 1.0: memory grows by 12 MB a minute, now 324 MB: a leak?"]);
  const filled = Array.from({ length: 120 }, (_, at): [number, number] => [at * 1000, at < 40 ? 1e8 + at * 1e6 : 1.4e8]);
  assert.equal(growth(filled), 0);
  const bent = Array.from({ length: 400 }, (_, at): [number, number] => [at * 1000, 5e7 + (at < 320 ? 0 : at - 320) * 2e6]);
  assert.ok(growth(bent) > 1.5e6, "it began with the traffic");
});

test("late answers and failures are told with their share", () => {
  const found = played(30, (second) => ({
    model: model({ lastError: "ValueError: bad luck", lastErrorTime: new Date(1_000_000).toISOString() }),
    sample: sample({ requests: second * 100, answered: second * 95, late: second * 19, failed: second * 5 }),
  }));
  assert.deepEqual(said(...found), [
    "warn: m 1.0: 5 % of requests fail. Last error: ValueError: bad luck",
    "warn: m 1.0: 20 % of the answers come later than 50 ms",
  ]);
});

test("the worst comes first, and a version without workers says what to do", () => {
  const [document, history] = played(2, () => ({ model: model({ state: "noWorkers", workersMin: 0, workers: [] }), sample: sample() }));
  document.machine = { cpuPercent: 1, memoryUsedBytes: 63.5e9, memoryTotalBytes: 64e9 };
  assert.deepEqual(said(document, history), [
    "bad: The machine's memory is 99.2 % full: 500 MB are left.",
    "warn: m 1.0 has no workers: every request is rejected.",
  ]);
});
