// A line of some pixels: which way something goes.

import type { JSX } from "preact";
import { line, runs } from "./scale";

interface Props {
  values: (number | null)[];
  label: string;
  width?: number;
  height?: number;
  /** Whether the line stands on 0, or shows only how it changes. */
  fromZero?: boolean;
}

export function Spark({ values, label, width = 90, height = 24, fromZero = true }: Props): JSX.Element {
  const known = values.filter((it) => it !== null);
  const top = Math.max(...known, fromZero ? 1e-9 : -Infinity);
  const least = fromZero ? 0 : Math.min(...known);
  // What hardly changes is drawn as a flat line.
  const low = !fromZero && top - least < top * 0.02 ? least - top * 0.05 : least;
  const span = Math.max(top - low, 1e-9);
  const x = (at: number): number => 1 + (at / Math.max(1, values.length - 1)) * (width - 2);
  const y = (value: number): number => height - 2 - ((value - low) / span) * (height - 4);
  return (
    <svg class="spark" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      {runs(values).map(([first, last]) => (
        <path class="line thin s1" d={line(values.slice(first, last + 1).map((value, at) => [x(first + at), y(value ?? 0)]))} />
      ))}
    </svg>
  );
}
