// Calls to the server, with the key if it asks for one. Addresses are relative to the page, so
// that a proxy may serve it below any path.

const KEY = "jitney-management-key";

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly needsKey: boolean,
  ) {
    super(message);
  }
}

export function readKey(): string | null {
  return sessionStorage.getItem(KEY);
}

export function keepKey(key: string | null): void {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

/** Asks the server with this key, or with that of the page. */
export async function send(path: string, options: RequestInit = {}, given = ""): Promise<Response> {
  const headers = new Headers(options.headers);
  const key = given || readKey();
  if (key) headers.set("Authorization", `Bearer ${key}`);
  try {
    return await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer.", false);
  }
}

/** The same; what the server refuses becomes an error with its sentence. */
export async function ask(path: string, options: RequestInit = {}, key = ""): Promise<Response> {
  const response = await send(path, options, key);
  if (response.ok) return response;
  throw await refusal(response);
}

async function refusal(response: Response): Promise<Refused> {
  const text = await response.text().catch(() => "");
  let message = text.trim().slice(0, 500) || `The server answered with ${response.status}.`;
  let type = "";
  try {
    const body = JSON.parse(text) as { message?: string; error?: string; type?: string };
    message = body.message ?? body.error ?? message;
    type = body.type ?? "";
  } catch {
    // The text itself is the message.
  }
  const needsKey = response.status === 401 || response.status === 403 || type === "InvalidKeyException";
  return new Refused(response.status, message, needsKey);
}

export async function getJson<T>(path: string, key = ""): Promise<T> {
  return (await ask(path, {}, key)).json() as Promise<T>;
}

/** Changes something, and tells what the server said about it. */
export async function change(method: "PUT" | "POST" | "DELETE", path: string, body?: unknown): Promise<string> {
  const options: RequestInit = { method };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json" };
  }
  const text = await (await ask(path, options)).text();
  try {
    const said = JSON.parse(text) as { status?: string; message?: string };
    return said.status ?? said.message ?? "Done.";
  } catch {
    return text.trim() || "Done.";
  }
}

export function modelPath(name: string, version: string, rest = ""): string {
  return `models/${encodeURIComponent(name)}/${encodeURIComponent(version)}${rest}`;
}
