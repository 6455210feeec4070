import assert from "node:assert/strict";
import { test } from "node:test";
import { allWell, grouped, healthWords } from "../src/data/problems";
import type { Problem } from "../src/data/types";
import { model, played, sample } from "./make";

function problem(model: string | null, tone: Problem["tone"], word: string): Problem {
  return { tone, model, word, what: `${model} ${word}`, advice: "", rollBackTo: null, moreWorkersHelp: false };
}

test("when nothing is wrong, one sentence says so", () => {
  const [document, history] = played(20, (second) => ({ model: model(), sample: sample({ requests: second * 9, answered: second * 9 }) }));
  assert.equal(allWell(document, history), "The model is ready and answering 9 requests a second.");
});

test("no green word stands beside a problem", () => {
  assert.deepEqual(healthWords("ready", []), { mark: "●", label: "ready", tone: "good" });
  const found = [problem("m/1", "bad", ""), problem("m/1", "bad", "rejecting"), problem("m/1", "warn", "late")];
  assert.deepEqual(healthWords("ready", found), { mark: "✕", label: "ready, rejecting", tone: "bad" });
  assert.equal(healthWords("ready", [problem("m/1", "note", "slower")]).tone, "good");
});

test("problems of one version stand together", () => {
  const found = [problem("a/1", "bad", "x"), problem("b/1", "bad", "y"), problem(null, "warn", "z"), problem("a/1", "warn", "w")];
  assert.deepEqual(grouped(found).map((it) => it.what), ["a/1 x", "a/1 w", "b/1 y", "null z"]);
});
