// Builds dist/ from src/. `--check` compares instead of writing, `--test` runs the unit tests.

import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const DIST = join(HERE, "dist");
const JS_BYTES_MAX = 150_000;
const shared = { bundle: true, charset: "utf8", legalComments: "none", logLevel: "warning", absWorkingDir: HERE };

async function files() {
  const { outputFiles } = await build({
    ...shared,
    entryPoints: { app: "src/main.tsx", style: "src/app.css" },
    outdir: "dist",
    write: false,
    minify: true,
    format: "esm",
    target: ["chrome123", "firefox120", "safari17.5"],
    jsx: "automatic",
    jsxImportSource: "preact",
  });
  const text = (ending) => outputFiles.find((it) => it.path.endsWith(ending)).text;
  const made = {
    "index.html": readFileSync(join(HERE, "src/index.html"), "utf8"),
    "app.js": text("app.js"),
    "app.css": text("style.css"),
    "favicon.svg": readFileSync(join(HERE, "src/favicon.svg"), "utf8"),
    "LICENSES.txt": licences(),
  };
  if (made["app.js"].length > JS_BYTES_MAX) throw new Error(`app.js has ${made["app.js"].length} bytes, at most ${JS_BYTES_MAX}`);
  return made;
}

/** The licences of what is inside app.js. */
function licences() {
  const own = JSON.parse(readFileSync(join(HERE, "package.json"), "utf8"));
  return Object.keys(own.dependencies)
    .map((name) => {
      const at = join(HERE, "node_modules", name);
      const { version, license } = JSON.parse(readFileSync(join(at, "package.json"), "utf8"));
      return `app.js contains ${name} ${version} (${license}):\n\n${readFileSync(join(at, "LICENSE"), "utf8").trim()}\n`;
    })
    .join("\n");
}

async function test() {
  const place = mkdtempSync(join(tmpdir(), "jitney-ui-"));
  try {
    const tests = readdirSync(join(HERE, "test")).filter((it) => it.endsWith(".test.ts"));
    await build({
      ...shared,
      entryPoints: tests.map((it) => join("test", it)),
      outdir: place,
      outExtension: { ".js": ".mjs" },
      platform: "node",
      format: "esm",
      jsx: "automatic",
      jsxImportSource: "preact",
    });
    const made = tests.map((it) => join(place, it.replace(/\.ts$/, ".mjs")));
    return spawnSync(process.execPath, ["--test", ...made], { stdio: "inherit" }).status ?? 1;
  } finally {
    rmSync(place, { recursive: true });
  }
}

if (process.argv.includes("--test")) process.exit(await test());
const made = await files();
if (process.argv.includes("--check")) {
  const stale = Object.entries(made).filter(([name, text]) => readFileSync(join(DIST, name), "utf8") !== text);
  const extra = readdirSync(DIST).filter((name) => !(name in made));
  for (const name of [...stale.map(([name]) => name), ...extra]) console.error(`dist/${name} is not what the sources give: make ui`);
  process.exit(stale.length + extra.length ? 1 : 0);
}
mkdirSync(DIST, { recursive: true });
for (const [name, text] of Object.entries(made)) {
  writeFileSync(join(DIST, name), text);
  console.log(`${String(text.length).padStart(7)} dist/${name}`);
}
