// From values to places on the screen: round steps for axes, and paths that leave gaps open.

/** Round values from 0 to at least `max`, about `wanted` of them. */
export function ticks(max: number, wanted = 3): number[] {
  if (!(max > 0) || !Number.isFinite(max)) return [0, 1];
  const rough = max / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((it) => it * power).find((it) => it >= rough * 0.999) ?? rough;
  const steps = Math.ceil(max / step - 1e-9);
  return Array.from({ length: steps + 1 }, (_, at) => Number((at * step).toPrecision(12)));
}

/** Whole minutes, or a part of them, between two times. */
export function timeTicks(from: number, to: number, wanted: number): number[] {
  const steps = [10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 3_600_000, 7_200_000, 14_400_000];
  const step = steps.find((it) => (to - from) / it <= wanted) ?? 21_600_000;
  const found: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}

export type Point = [number, number];

/** Runs of neighbours that are known. */
export function runs(values: (number | null)[]): [number, number][] {
  const found: [number, number][] = [];
  let start = -1;
  values.forEach((value, at) => {
    if (value !== null && start < 0) start = at;
    if (value === null && start >= 0) {
      found.push([start, at - 1]);
      start = -1;
    }
  });
  if (start >= 0) found.push([start, values.length - 1]);
  return found;
}

export function line(points: Point[]): string {
  return points.map(([x, y], at) => `${at ? "L" : "M"}${fixed(x)} ${fixed(y)}`).join("");
}

/** The area between two lines. */
export function area(top: Point[], bottom: Point[]): string {
  const back = [...bottom].reverse();
  return top.length ? `${line(top)}${back.map(([x, y]) => `L${fixed(x)} ${fixed(y)}`).join("")}Z` : "";
}

function fixed(value: number): string {
  return String(Math.round(value * 10) / 10);
}
