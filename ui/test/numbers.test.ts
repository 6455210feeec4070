import assert from "node:assert/strict";
import { test } from "node:test";
import { alike } from "../src/view/why";
import { sizeTicks } from "../src/charts/curve";
import { barsOf } from "../src/charts/bars";
import { runs, ticks } from "../src/charts/scale";
import { bytes, count, duration, millis, percent, rate, times } from "../src/data/format";
import { difference, grown, quantile, shareBetween, sizesBetween } from "../src/data/histogram";
import { cells, grid, History, means, rates, recent, recentQuantile, summedMarks, trend, within, marks } from "../src/data/history";
import { Messages } from "../src/data/stream";
import { document, model, sample } from "./make";

function check<T>(write: (value: T) => string, cases: [T, string][]): void {
  for (const [value, text] of cases) assert.equal(write(value), text);
}

test("numbers have the digits that matter and their unit", () => {
  check(rate, [[0, "0"], [0.02, "<0.1"], [0.2, "0.2"], [9.97, "10"], [240.4, "240"], [12_345, "12 k"], [1_250_000, "1.3 M"]]);
  check(count, [[0, "0"], [9_999, "9999"], [10_400, "10 k"], [NaN, "–"]]);
  check(millis, [[0, "0 ms"], [0.42, "0.42 ms"], [5.25, "5.3 ms"], [52.4, "52 ms"], [1234, "1.2 s"], [100_000, "2 min"]]);
  check(duration, [[5, "5 s"], [64, "64 s"], [180, "3 min"], [7500, "2 h 5 min"], [90_000, "1 d 1 h"]]);
  check(bytes, [[0, "0 B"], [842e6, "842 MB"], [1.5e9, "1.5 GB"], [-2e6, "−2 MB"], [999_600_000, "1 GB"]]);
  check(percent, [[0, "0 %"], [0.0004, "<0.1 %"], [0.013, "1.3 %"], [0.4, "40 %"], [0.9999, "99.9 %"], [1, "100 %"]]);
  check(times, [[1, "once"], [2, "twice"], [7, "7 times"]]);
});

test("quantiles are interpolated, and of what lies between two documents", () => {
  const early = { bounds: [1, 2, 4], counts: [100, 0, 0, 0], sum: 50 };
  const late = { bounds: [1, 2, 4], counts: [100, 10, 10, 0], sum: 95 };
  const now = difference(late, early);
  assert.deepEqual(now.counts, [0, 10, 10, 0]);
  assert.equal(quantile(now, 0.5), 2);
  assert.equal(quantile(now, 0.75), 3);
  assert.equal(shareBetween(now, 1.5, 3), 0.5);
  assert.equal(quantile({ bounds: [1], counts: [0, 5], sum: 9 }, 0.5), 1, "above all bounds: at least the last");
  assert.equal(quantile({ bounds: [1], counts: [0, 0], sum: 0 }, 0.5), null);
  assert.equal(difference(early, late), early, "a version that was registered anew counts from 0");
});

test("counts by name and by size are differences too", () => {
  assert.deepEqual(grown({ full: 5, idle: 2 }, { full: 3, idle: 2 }), { full: 2 });
  const size = (size: number, batches: number) => ({ size, batches, answered: batches, computeSeconds: batches / 2 });
  assert.deepEqual(sizesBetween([size(1, 4), size(8, 9), size(2, 3)], [size(8, 2), size(2, 3)]), [size(1, 4), size(8, 7)]);
});

test("rates come from totals; gaps and new beginnings are not drawn", () => {
  const at = (second: number, requests: number) => ({ time: second * 1000, models: { m: sample({ requests, answered: requests, queueSecondsSum: requests / 100 }) } });
  const samples = [at(0, 0), at(2, 20), at(4, 60), at(20, 100), at(22, 10), at(24, 20)];
  const drawn = grid(samples, "m", 24_000, 24, 12);
  assert.equal(drawn.stepMs, 4000);
  assert.deepEqual(rates(drawn, "requests"), [null, 15, 0, null, null, null, null]);
  assert.equal(means(drawn, "queueSecondsSum", "answered")[1]?.toFixed(3), "0.010");
  assert.deepEqual(within(drawn, 4, (it) => it.requests).slice(0, 3), [0, 60, 0]);
  assert.equal(recent(samples, "m", 2)?.requests, 10);
  assert.equal(recent(samples, "other", 2), null);
});

test("old documents are thinned out, and the server's past replaces ours", () => {
  const history = new History();
  for (let second = 0; second < 900; second++) history.add(document(second * 1000, [model()]));
  assert.ok(history.documents.length < 130, String(history.documents.length));
  assert.equal(history.before(30)?.time, 869_000);
  assert.equal(history.samples[0]?.time, 299_000);
  history.past([{ time: 890_000, models: {} }]);
  assert.deepEqual([history.samples[0]?.time, history.samples.length], [890_000, 10]);
});

test("a server that has taken no sample yet has no history, and is shown", () => {
  const history = new History();
  history.add({ ...document(1000, [model()]), sample: null });
  assert.deepEqual([history.samples.length, history.documents.length], [0, 1]);
});

test("a trend has its slope per second", () => {
  assert.equal(trend([[0, 0], [1000, 5], [2000, 10]])?.slope, 5);
  assert.equal(trend([[0, 0]]), null);
});

test("axes have round steps, and lines break where nothing is known", () => {
  assert.deepEqual(ticks(50), [0, 20, 40, 60]);
  assert.deepEqual(ticks(0), [0, 1]);
  assert.deepEqual(ticks(0.9), [0, 0.5, 1]);
  assert.deepEqual(runs([null, 1, 2, null, 3]), [[1, 2], [4, 4]]);
  assert.deepEqual(sizeTicks(32, 400), [1, 5, 10, 15, 20, 25, 30]);
  assert.equal(barsOf([{ size: 200, batches: 3, answered: 3, computeSeconds: 1 }], 256).at(-1)?.label, "253–256");
});

test("messages of a stream are cut where they end", () => {
  const messages = new Messages();
  assert.deepEqual(messages.push("event: overview\nda"), []);
  assert.deepEqual(messages.push('ta: {"a":1}\n\n: ping\n\nevent: log\r\ndata: x\r\n\r\n'), [
    { event: "overview", data: '{"a":1}' },
    { event: "log", data: "x" },
  ]);
});

test("exits, settings and versions are marked where they changed", () => {
  const at = (second: number, change: object, more = {}) => ({ time: second * 1000, models: { "m/1": sample(change), "mm/1": sample(), ...more } });
  const samples = [at(0, {}), at(2, { exits: 1 }), at(4, { exits: 1, settingChanges: 1 }, { "m/2": sample() }), at(6, { exits: 1, settingChanges: 1 })];
  assert.deepEqual(marks(samples, "m/1"), [
    { time: 2000, label: "a worker exited or could not load" },
    { time: 4000, label: "a setting was changed" },
    { time: 4000, label: "version 2 came" },
    { time: 6000, label: "version 2 went" },
  ]);
});

test("what happened again and again is one event", () => {
  const at = (second: number, label: string) => ({ time: second * 1000, label });
  assert.deepEqual(summedMarks([at(2, "exit"), at(4, "exit"), at(6, "setting"), at(8, "exit")]), [
    { label: "exit", first: 2000, last: 4000, times: 2 },
    { label: "setting", first: 6000, last: 6000, times: 1 },
    { label: "exit", first: 8000, last: 8000, times: 1 },
  ]);
});

test("a quantile is that of the newest sample with answers, and each its own", () => {
  const at = (second: number, p50Ms: number | null) => ({ time: second * 1000, models: { m: sample({ p50Ms, p99Ms: p50Ms && 2 * p50Ms }) } });
  const samples = [at(0, 5), at(20, 7), at(22, null)];
  assert.deepEqual([recentQuantile(samples, "m", "p50Ms"), recentQuantile(samples, "m", "p99Ms")], [7, 14]);
  assert.equal(recentQuantile([at(0, 5), at(60, null)], "m", "p50Ms"), null, "long ago");
  assert.equal(recentQuantile([], "m", "p50Ms"), null);
});

test("classes are summed over the time of a cell", () => {
  const at = (second: number, latencyClasses?: number[]) => ({ time: second * 1000, models: { m: sample(latencyClasses ? { latencyClasses } : {}) } });
  const samples = [at(0, [1]), at(2, [0, 2]), at(4), at(6, [3])];
  assert.deepEqual(cells(samples, "m", [0, 8000], 2, (it) => it.latencyClasses), [[1, 2], [3]]);
});

test("neighbours with the same verdict are one line", () => {
  const decision = (verdict: string) => ({ agoMs: 1, verdict, size: 1, words: verdict });
  assert.deepEqual(alike(["refuse", "refuse", "depart", "refuse"].map(decision)).map((it) => it.length), [2, 1, 1]);
});
