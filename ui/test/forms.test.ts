import assert from "node:assert/strict";
import { test } from "node:test";
import { example, filledBy, headersOf, operationsOf } from "../src/data/forms";
import type { NotedRequest } from "../src/data/types";
import { model } from "./make";

const box = { type: "object", properties: { width: { type: "number" }, inner: { $ref: "#/components/schemas/Box" } }, required: ["width"] };
const json = (schema: object) => ({ content: { "application/json": { schema } } });
const document = {
  paths: {
    "/m/pack": { post: { tags: ["m"], summary: "Packs", requestBody: json({ type: "object", properties: { size: { enum: ["S", "L"] }, box: { $ref: "#/components/schemas/Box" } } }) } },
    "/m/look": { post: { tags: ["m"], requestBody: { content: { "image/*": {} } } } },
    "/other": { post: { tags: ["other"] } },
    "/v2/models/m/infer": { post: { tags: ["m (Open Inference Protocol)"] } },
  },
  components: { schemas: { Box: box } },
};

test("a model's operations tell what they take", () => {
  const [pack, look, ...more] = operationsOf(model(), document);
  assert.deepEqual([pack?.path, pack?.kind, pack?.fields.map((it) => it.choices)], ["/m/pack", "json", [["S", "L"]]]);
  assert.equal((JSON.parse(pack?.text ?? "") as { size: string }).size, "S");
  assert.match(pack?.schema ?? "", /^Box$/m);
  assert.deepEqual([look?.kind, look?.accept, more.length], ["any", "image/*", 0]);
});

test("a version that is not the default one is named in the path", () => {
  const other = model({ version: "2", isDefault: false });
  assert.deepEqual(operationsOf(other, document).map((it) => it.path), ["/predictions/m/2/pack", "/predictions/m/2/look"]);
  assert.deepEqual(operationsOf(other, { paths: {} }).map((it) => [it.path, it.kind]), [["/predictions/m/2", "any"]]);
});

test("a class that holds itself has an end", () => {
  assert.ok(JSON.stringify(example(box, { Box: box })).length < 1000);
});

test("a request that failed fills the form but for what the browser sends", () => {
  const request = { path: "/predictions/m/1", headers: [["host", "a"], ["content-type", "text/plain"], ["x-own", "a:b"]] } as unknown as NotedRequest;
  const { path, headers, body } = filledBy(request, new TextEncoder().encode("hello").buffer);
  assert.equal(body, "hello");
  assert.ok(filledBy(request, new Uint8Array([255]).buffer).body instanceof Blob);
  assert.deepEqual([path, headersOf(headers)], ["/predictions/m/1", [["content-type", "text/plain"], ["x-own", "a:b"]]]);
  assert.deepEqual(headersOf("\nnothing\n"), []);
});
