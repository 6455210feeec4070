import assert from "node:assert/strict";
import { test } from "node:test";
import { applicationOf, applications } from "../src/data/applications";
import { keyOf } from "../src/data/types";
import { model } from "./make";

const part = (name: string, version: string, ...calls: string[]) =>
  model({ name, version, dependsOn: calls.map((it) => ({ model: it, version })) });

test("parts stand right of all that call them", () => {
  const models = [part("d", "1"), part("b", "1", "d"), part("a", "1", "b", "c", "d"), part("c", "1"), part("alone", "1")];
  const found = applications(models);
  assert.equal(found.length, 1);
  const [application] = found;
  assert.ok(application);
  assert.equal(application.root, "a/1");
  const at = Object.fromEntries(application.places.map((it) => [it.model.name, [it.column, it.row]]));
  assert.deepEqual(at, { a: [0, 0], b: [1, 0], c: [1, 1], d: [2, 0] });
  const calls = application.calls.map(({ from, to }) => `${from.model.name}${to.model.name}`);
  assert.deepEqual(calls, ["ab", "ac", "ad", "bd"]);
  assert.deepEqual([application.columns, application.rows], [3, 2]);
});

test("versions of an application are apart, and what is not registered is left out", () => {
  const models = [part("a", "1", "b"), part("b", "1"), part("a", "2", "b", "gone"), part("b", "2")];
  assert.deepEqual(applications(models).map((it) => it.places.map((place) => keyOf(place.model))), [["a/1", "b/1"], ["a/2", "b/2"]]);
  assert.equal(applicationOf("b/2", models)?.root, "a/2");
  assert.equal(applicationOf("other/1", models), undefined);
});

test("a dependency without a version is the default one, and circles end", () => {
  const named = model({ name: "a", dependsOn: [{ model: "b", version: null }] });
  const models = [named, model({ name: "b", version: "2", isDefault: true }), model({ name: "b", version: "3", isDefault: false })];
  assert.equal(applications(models)[0]?.places.length, 2);
  assert.equal(applications([part("x", "1", "y"), part("y", "1", "x")]).length, 1);
});
