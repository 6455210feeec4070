// The learned curve: how long a batch of each size takes, the band that predictions keep to, and
// what batches really took in the last minute.

import type { JSX } from "preact";
import { count, millis } from "../data/format";
import type { CurvePoint } from "../data/types";
import type { Point } from "./scale";
import { area, line, ticks } from "./scale";
import { useWidth } from "./width";

export interface Measured {
  size: number;
  ms: number;
  batches: number;
}

const HEIGHT = 190;
const LEFT = 52;
const RIGHT = 12;
const TOP = 8;
const BOTTOM = 34;

export function Curve({ curve, measured, largest }: { curve: CurvePoint[]; measured: Measured[]; largest: number }): JSX.Element {
  const [place, width] = useWidth<HTMLDivElement>();
  if (curve.length === 0 && measured.length === 0) {
    return <p class="empty" ref={place as never}>Nothing is learned yet: the first batches teach it.</p>;
  }
  const end = Math.max(2, largest, ...curve.map((it) => it.size), ...measured.map((it) => it.size));
  const marks = ticks(Math.max(...curve.map((it) => Math.max(it.plannedMs ?? 0, it.ms)), ...measured.map((it) => it.ms)));
  const top = marks.at(-1) ?? 1;
  const inner = width - LEFT - RIGHT;
  const x = (size: number): number => LEFT + ((size - 1) / (end - 1)) * inner;
  const y = (ms: number): number => TOP + (1 - Math.min(ms, top) / top) * (HEIGHT - TOP - BOTTOM);
  const path = (read: (it: CurvePoint) => number): Point[] => curve.map((it) => [x(it.size), y(read(it))]);
  const last = curve.at(-1);
  const spoken = curve.map((it) => `${it.size} items ${millis(it.ms)}`).join(", ");
  return (
    <>
      <ul class="legend">
        <li><i class="swatch s1" />learned mean{last ? <> <b>{millis(last.ms)}</b> for {last.size}</> : null}</li>
        <li><i class="swatch band" />prediction band{last?.plannedMs ? <>, up to <b>{millis(last.plannedMs)}</b></> : null}</li>
        <li><i class="swatch dot" />measured in the last minute</li>
      </ul>
      <div ref={place} class="plot">
        <svg width={width} height={HEIGHT} role="img" aria-label={`Learned time of a batch by its size: ${spoken}`}>
          {marks.map((mark) => (
            <g key={mark}>
              <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(mark)} y2={y(mark)} />
              <text class="tick" x={LEFT - 6} y={y(mark) + 4} text-anchor="end">{millis(mark)}</text>
            </g>
          ))}
          {sizeTicks(end, inner).map((size) => (
            <text key={size} class="tick" x={x(size)} y={HEIGHT - 18} text-anchor="middle">{size}</text>
          ))}
          <text class="tick" x={LEFT + inner / 2} y={HEIGHT - 3} text-anchor="middle">items in the batch</text>
          <path class="area band" d={area(path((it) => it.plannedMs ?? it.ms), path((it) => it.lowMs ?? it.ms))} />
          <path class="line s1" d={line(path((it) => it.ms))} />
          {curve.map((it) => (
            <circle key={it.size} class={`knot ${it.samples ? "" : "guess"}`} cx={x(it.size)} cy={y(it.ms)} r={3}>
              <title>{`${it.size} items: learned ${millis(it.ms)}, planned ${millis(it.plannedMs)}, from ${count(it.samples)} batches`}</title>
            </circle>
          ))}
          {measured.map((it) => (
            <circle key={it.size} class="measured" cx={x(it.size)} cy={y(it.ms)} r={Math.min(6, 2.5 + Math.log10(it.batches))}>
              <title>{`${it.size} items: ${millis(it.ms)} measured in ${count(it.batches)} batches`}</title>
            </circle>
          ))}
        </svg>
      </div>
    </>
  );
}

export function sizeTicks(end: number, width: number): number[] {
  const wanted = Math.max(2, Math.floor(width / 44));
  const step = ticks(end, wanted)[1] ?? 1;
  const whole = Math.max(1, Math.round(step));
  const found = [1];
  for (let at = whole; at <= end; at += whole) if (at > 1 && (at - 1) / end > 0.06) found.push(at);
  return found;
}
