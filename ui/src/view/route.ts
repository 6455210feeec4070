// Which page is shown: the part of the address after `#`, so that a link leads to a model.

import { useEffect, useState } from "preact/hooks";

export type Route = { page: "models" } | { page: "logs"; model: string | undefined } | { page: "model"; name: string; version: string };

export function parse(hash: string): Route {
  const [page, name, version] = hash.replace(/^#\/?/, "").split("/").map(decode);
  if (page === "logs") return { page: "logs", model: name };
  if (page === "model" && name && version) return { page: "model", name, version };
  return { page: "models" };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The warnings of one model in the log. */
export function logLink(key: string): string {
  return `#/logs/${encodeURIComponent(key.slice(0, key.lastIndexOf("/")))}`;
}

export function modelLink(key: string): string {
  const cut = key.lastIndexOf("/");
  return `#/model/${encodeURIComponent(key.slice(0, cut))}/${encodeURIComponent(key.slice(cut + 1))}`;
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
