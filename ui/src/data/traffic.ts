// The shares of a model's versions while they are being moved: percentages that always add up to 100.

import type { Model } from "./types";

/** Percent of the requests without a version, by version. */
export type Shares = Readonly<Record<string, number>>;

/** How versions share the requests of their model, as the server writes it. */
export interface TrafficDocument {
  shares: Shares;
  sticky?: string;
  return?: Record<string, unknown>;
  promote?: string;
  shadow?: { version: string; share: number };
  returned?: Record<string, string>;
}

/** The shares as they are now: those of the overview, else the default version has everything. */
export function sharesOf(versions: readonly Pick<Model, "version" | "share" | "isDefault">[]): Shares {
  const shared = versions.some((it) => it.share !== null);
  const percent = (it: Pick<Model, "share" | "isDefault">): number => (shared ? tenth((it.share ?? 0) * 100) : it.isDefault ? 100 : 0);
  return Object.fromEntries(versions.map((it) => [it.version, percent(it)]));
}

/** The shares once one of them was moved: the others share the rest as they did before, or `rest` gets it all. */
export function moved(shares: Shares, version: string, percent: number, rest: string): Shares {
  const others = Object.keys(shares).filter((it) => it !== version);
  if (others.length === 0) return { [version]: 100 };
  const now = tenth(Math.min(100, Math.max(0, percent)));
  const before = others.reduce((sum, it) => sum + (shares[it] ?? 0), 0);
  const heir = others.includes(rest) ? rest : (others[0] ?? rest);
  const next: Record<string, number> = { ...shares, [version]: now };
  for (const it of others) next[it] = before > 0 ? tenth(((shares[it] ?? 0) / before) * (100 - now)) : 0;
  // What rounding left over, and everything where the others had nothing.
  const left = 100 - Object.values(next).reduce((sum, it) => sum + it, 0);
  const last = before > 0 ? others.reduce((one, it) => ((next[it] ?? 0) > (next[one] ?? 0) ? it : one)) : heir;
  next[last] = tenth((next[last] ?? 0) + left);
  return next;
}

/** Whether two shares are the same. */
export function sameShares(one: Shares, other: Shares): boolean {
  return Object.keys({ ...one, ...other }).every((it) => Math.abs((one[it] ?? 0) - (other[it] ?? 0)) < 0.05);
}

/** The document with other shares: its rules stay, and a version that gets requests again was not sent back. */
export function withShares(document: TrafficDocument, shares: Shares): TrafficDocument {
  const stays = Object.entries(document.returned ?? {}).filter(([version]) => !shares[version]);
  const { returned: _, ...rest } = document;
  return { ...rest, shares, ...(stays.length > 0 ? { returned: Object.fromEntries(stays) } : {}) };
}

/** The rules of a document in words; empty where it has none. */
export function ruleWords(document: TrafficDocument): string[] {
  const rule = Object.entries(document.return ?? {}).map(([name, value]) => `${name} ${String(value)}`);
  return [
    document.sticky ? `Clients are known by ${document.sticky}.` : "",
    rule.length > 0 ? `A version goes back by itself: ${rule.join(", ")}.` : "",
    document.promote ? `A version goes forward by itself: ${document.promote}.` : "",
    document.shadow ? `Version ${document.shadow.version} is the shadow of ${document.shadow.share} %.` : "",
  ].filter((it) => it !== "");
}

function tenth(percent: number): number {
  return Math.round(percent * 10) / 10;
}
