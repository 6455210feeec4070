import assert from "node:assert/strict";
import { test } from "node:test";
import { moved, ruleWords, sameShares, sharesOf, withShares } from "../src/data/traffic";

const sum = (shares: Readonly<Record<string, number>>): number => Object.values(shares).reduce((all, it) => all + it, 0);

test("without shares the default version has everything", () => {
  const versions = [{ version: "1.0", share: null, isDefault: false }, { version: "2.0", share: null, isDefault: true }];
  assert.deepEqual(sharesOf(versions), { "1.0": 0, "2.0": 100 });
  assert.deepEqual(sharesOf([{ version: "1.0", share: 0.9, isDefault: true }, { version: "2.0", share: 0.1, isDefault: false }]), { "1.0": 90, "2.0": 10 });
});

test("the others share what is left as they did before", () => {
  assert.deepEqual(moved({ a: 60, b: 20, c: 20 }, "c", 60, "a"), { a: 30, b: 10, c: 60 });
  assert.deepEqual(moved({ a: 0, b: 100, c: 0 }, "b", 70, "a"), { a: 30, b: 70, c: 0 });
  assert.deepEqual(moved({ a: 100, b: 0 }, "b", 250, "a"), { a: 0, b: 100 });
  assert.deepEqual(moved({ a: 100, b: 0 }, "a", 40, "a"), { a: 40, b: 60 });
  assert.deepEqual(moved({ a: 100 }, "a", 5, "a"), { a: 100 });
});

test("shares add up to 100 whatever is moved", () => {
  let shares: Readonly<Record<string, number>> = { a: 34, b: 33, c: 33 };
  for (const [at, version] of ["a", "b", "c", "b", "a", "c"].entries()) {
    shares = moved(shares, version, (at * 37) % 101, "a");
    assert.ok(Math.abs(sum(shares) - 100) < 1e-6 && Object.values(shares).every((it) => it >= 0), JSON.stringify(shares));
  }
});

test("rules stay, and a version that gets requests again was not sent back", () => {
  const document = { shares: { a: 100, b: 0 }, return: { errors: "+1%" }, promote: "10% every 1m", returned: { b: "it failed", c: "it was slow" } };
  const next = withShares(document, { a: 90, b: 10 });
  assert.deepEqual([next.shares, next.return, next.returned], [{ a: 90, b: 10 }, { errors: "+1%" }, { c: "it was slow" }]);
  assert.equal("returned" in withShares({ shares: {} }, { a: 1 }), false);
  assert.deepEqual(ruleWords(document), ["A version goes back by itself: errors +1%.", "A version goes forward by itself: 10% every 1m."]);
  assert.ok(sameShares({ a: 100 }, { a: 100, b: 0 }) && !sameShares({ a: 100 }, { a: 99 }));
});
