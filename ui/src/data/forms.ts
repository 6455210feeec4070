// What a form to try a model is made of: the model's operations out of the OpenAPI document, and a body to start from.

import type { Model, NotedRequest } from "./types";

export interface Schema {
  $ref?: string;
  type?: string;
  format?: string;
  enum?: unknown[];
  default?: unknown;
  anyOf?: Schema[];
  prefixItems?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
}

interface Content {
  schema?: Schema;
  example?: unknown;
}

export interface ApiDocument {
  paths: Record<string, { post?: { tags?: string[]; summary?: string; requestBody?: { content?: Record<string, Content> } } }>;
  components?: { schemas?: Record<string, Schema> };
}

export interface Operation {
  path: string;
  summary: string;
  /** What the body is: JSON that is typed, the fields of a form, or anything. */
  kind: "json" | "form" | "any";
  /** What files are chosen from, as a file field wants it. */
  accept: string;
  /** JSON to start typing from. */
  text: string;
  /** Of JSON: arguments that are one of several values. Of a form: its fields. */
  fields: Field[];
  /** The schema of the body, with the classes that it names. */
  schema: string;
}

export interface Field {
  name: string;
  required: boolean;
  isFile: boolean;
  choices: unknown[];
  value: string;
}

/** How a form is filled in by a request that was sent before. */
export interface Filled {
  path: string;
  headers: string;
  /** Its body, if the server has kept it; text where it is one. */
  body: string | Blob | null;
}

const CLASSES = "#/components/schemas/";
const DEPTH_MAX = 8;
/** Headers that the browser sends itself, or that belong to the old request's way. */
const OWN_HEADERS = /^(host|connection|content-length|transfer-encoding|expect|te|user-agent|accept-encoding|accept-language|origin|referer|x-request-id|traceparent|tracestate|x-forwarded-.*|forwarded|sec-.*)$/;

export function filledBy(request: NotedRequest, body: ArrayBuffer | null): Filled {
  const headers = request.headers.filter(([name]) => !OWN_HEADERS.test(name));
  return { path: request.path, headers: headers.map(([name, value]) => `${name}: ${value}`).join("\n"), body: body && textOf(body) };
}

function textOf(body: ArrayBuffer): string | Blob {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    return new Blob([body]);
  }
}

/** What a person types, one header to a line. */
export function headersOf(text: string): [string, string][] {
  const lines = text.split("\n").map((line) => line.split(/:(.*)/s));
  return lines.flatMap(([name, value]): [string, string][] => (name?.trim() && value !== undefined ? [[name.trim(), value.trim()]] : []));
}

/** The operations of a version; one that takes anything where nothing is known. */
export function operationsOf(model: Pick<Model, "name" | "version" | "isDefault">, document: ApiDocument): Operation[] {
  const classes = document.components?.schemas ?? {};
  const own = Object.entries(document.paths).filter(([, item]) => item.post?.tags?.[0] === model.name);
  const found = own.map(([path, { post }]) => operation(versioned(path, model), post?.summary ?? "", post?.requestBody?.content ?? {}, classes));
  return found.length > 0 ? found : [operation(versioned(`/predictions/${model.name}`, model), "Runs the model", {}, {})];
}

/** The path of this version: a bare one leads to the default version. */
function versioned(path: string, { name, version, isDefault }: Pick<Model, "name" | "version" | "isDefault">): string {
  const [first, ...rest] = path.slice(1).split("/");
  if (isDefault) return path;
  if (first === "predictions") return `${path}/${version}`;
  return first === name ? ["/predictions", name, version, ...rest].join("/") : path;
}

function operation(path: string, summary: string, content: Record<string, Content>, classes: Record<string, Schema>): Operation {
  const json = content["application/json"];
  const form = content["multipart/form-data"];
  const given = json?.schema ?? form?.schema;
  const schema = opened(given?.anyOf?.[0] ?? given, classes);
  const fields = Object.entries(schema?.properties ?? {}).map(([name, it]) => fieldOf(name, it, schema?.required?.includes(name) ?? false, classes));
  return {
    path,
    summary,
    kind: json ? "json" : form ? "form" : "any",
    accept: Object.keys(content).find((it) => it.startsWith("image/")) ?? "",
    text: json ? (JSON.stringify(json.example ?? example(json.schema, classes), null, 2) ?? "") : "",
    fields: json ? fields.filter((it) => it.choices.length > 0) : fields,
    schema: given ? withClasses(given, classes) : "",
  };
}

function fieldOf(name: string, given: Schema, required: boolean, classes: Record<string, Schema>): Field {
  const schema = opened(given, classes) ?? {};
  const choice = opened(schema.anyOf?.find((it) => opened(it, classes)?.enum) ?? schema, classes) ?? {};
  const value = choice.default ?? choice.enum?.[0] ?? "";
  return { name, required, isFile: schema.format === "binary", choices: choice.enum ?? [], value: String(value) };
}

/** A schema with the class in the place of its name. */
function opened(schema: Schema | undefined, classes: Record<string, Schema>): Schema | undefined {
  return schema?.$ref ? { ...classes[schema.$ref.slice(CLASSES.length)], ...schema, $ref: "" } : schema;
}

/** Something to start typing from. A class may hold itself. */
export function example(given: Schema | undefined, classes: Record<string, Schema>, depth = 0): unknown {
  const schema = opened(given, classes);
  const inner = (it: Schema | undefined): unknown => example(it, classes, depth + 1);
  if (!schema || depth > DEPTH_MAX) return null;
  if ("default" in schema) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf) return inner(schema.anyOf[0]);
  if (schema.prefixItems) return schema.prefixItems.map(inner);
  if (schema.type === "object") return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, it]) => [name, inner(it)]));
  if (schema.type === "array") return [inner(schema.items) ?? [1, 2, 3]];
  return { integer: 1, number: 1.5, string: "text", boolean: true }[schema.type ?? ""] ?? null;
}

function withClasses(schema: Schema, classes: Record<string, Schema>): string {
  const texts = [JSON.stringify(schema, null, 2)];
  const named = new Set<string>();
  for (let at = 0; at < texts.length; at++) { // Grows while it is walked: classes name others.
    for (const name of texts[at]?.match(/(?<=schemas\/)[\w.-]+/g) ?? []) {
      if (named.has(name)) continue;
      named.add(name);
      texts.push(`${name}\n${JSON.stringify(classes[name] ?? {}, null, 2)}`);
    }
  }
  return texts.join("\n\n");
}
