// Which page is shown: the part of the address after `#`, so that a link leads to a model.

import { useEffect, useState } from "preact/hooks";

/** The views of a version, the first one at its address without more. */
export const TABS = ["overview", "batching", "workers", "requests", "log", "settings"] as const;
export type Tab = (typeof TABS)[number];

export type Route = { page: "models" } | { page: "logs"; model: string | undefined; contains: string | undefined } | { page: "model"; name: string; version: string; tab: Tab };

export function parse(hash: string): Route {
  const [page, name, version, view] = hash.replace(/^#\/?/, "").split("/").map(decode);
  if (page === "logs") return { page: "logs", model: name, contains: version };
  if (page === "model" && name && version) return { page: "model", name, version, tab: TABS.find((it) => it === view) ?? "overview" };
  return { page: "models" };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The lines of one model in the log: its warnings, or those with some text. */
export function logLink(key: string, contains = ""): string {
  return `#/logs/${encodeURIComponent(key.slice(0, key.lastIndexOf("/")))}${contains && `/${encodeURIComponent(contains)}`}`;
}

export function modelLink(key: string, tab: Tab = "overview"): string {
  const cut = key.lastIndexOf("/");
  const rest = tab === "overview" ? "" : `/${tab}`;
  return `#/model/${encodeURIComponent(key.slice(0, cut))}/${encodeURIComponent(key.slice(cut + 1))}${rest}`;
}

export function useRoute(): Route {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const change = (): void => {
      set(parse(location.hash));
      scrollTo(0, 0);
    };
    addEventListener("hashchange", change);
    return () => removeEventListener("hashchange", change);
  }, []);
  return route;
}
