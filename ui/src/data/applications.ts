// Applications made of parts: which version calls which, laid out in columns from callers to what they call.

import type { Model } from "./types";
import { keyOf } from "./types";

export interface Place {
  model: Model;
  column: number;
  row: number;
}

export interface Call {
  from: Place;
  to: Place;
}

export interface Application {
  /** The version that nobody calls, or the first by name where several share their parts. */
  root: string;
  places: Place[];
  calls: Call[];
  columns: number;
  rows: number;
}

/** The applications among the models, by name; a model without parts and callers is none. */
export function applications(models: Model[]): Application[] {
  const known = new Map(models.map((it) => [keyOf(it), it]));
  const called = new Map([...known].map(([key, it]) => [key, calledBy(it, known)]));
  return groups(called).map((keys) => layout(keys, known, called));
}

/** The application that this version belongs to. */
export function applicationOf(key: string, models: Model[]): Application | undefined {
  return applications(models).find((it) => it.places.some((place) => keyOf(place.model) === key));
}

/** What a model calls, as far as it is registered. */
function calledBy(model: Model, known: Map<string, Model>): string[] {
  const keys = (model.dependsOn ?? []).map((it) => (it.version === null ? defaultOf(it.model, known) : keyOf({ name: it.model, version: it.version })));
  return [...new Set(keys)].filter((key): key is string => key !== undefined && known.has(key));
}

function defaultOf(name: string, known: Map<string, Model>): string | undefined {
  for (const [key, it] of known) if (it.name === name && it.isDefault) return key;
  return undefined;
}

/** Keys that are connected by calls, each group sorted; single ones are left out. */
function groups(called: Map<string, string[]>): string[][] {
  const near = new Map([...called.keys()].map((key) => [key, new Set<string>()]));
  for (const [from, all] of called) {
    for (const to of all) {
      near.get(from)?.add(to);
      near.get(to)?.add(from);
    }
  }
  const seen = new Set<string>();
  const found: string[][] = [];
  for (const start of [...near.keys()].sort()) {
    if (seen.has(start)) continue;
    const group = [start];
    seen.add(start);
    for (const key of group) {
      for (const next of near.get(key) ?? []) {
        if (!seen.has(next)) {
          seen.add(next);
          group.push(next);
        }
      }
    }
    if (group.length > 1) found.push(group.sort());
  }
  return found;
}

/** A model stands one column right of the last of its callers. */
function layout(keys: string[], known: Map<string, Model>, called: Map<string, string[]>): Application {
  const column = new Map(keys.map((key) => [key, 0]));
  // The server refuses circles; as many rounds as there are models end in any case.
  for (let round = 0, moved = true; moved && round < keys.length; round++) {
    moved = false;
    for (const from of keys) {
      for (const to of called.get(from) ?? []) {
        const least = (column.get(from) ?? 0) + 1;
        if ((column.get(to) ?? 0) < least) {
          column.set(to, least);
          moved = true;
        }
      }
    }
  }
  const filled = new Map<number, number>();
  const places = keys.flatMap((key) => {
    const model = known.get(key);
    const at = column.get(key) ?? 0;
    const row = filled.get(at) ?? 0;
    filled.set(at, row + 1);
    return model ? [{ model, column: at, row }] : [];
  });
  const placed = new Map(places.map((it) => [keyOf(it.model), it]));
  const calls = places.flatMap((from) =>
    (called.get(keyOf(from.model)) ?? []).flatMap((key) => {
      const to = placed.get(key);
      return to ? [{ from, to }] : [];
    }),
  );
  const root = places.find((it) => it.column === 0);
  return { root: root ? keyOf(root.model) : "", places, calls, columns: Math.max(...column.values()) + 1, rows: Math.max(...filled.values()) };
}
