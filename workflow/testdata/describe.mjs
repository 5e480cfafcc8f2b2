// Describes a script as the sandbox would, for the stories in testdata.
// Usage: node describe.mjs script.js
import { readFileSync, writeFileSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, basename } from "node:path";
import { pathToFileURL } from "node:url";

const file = process.argv[2];
const text = readFileSync(file, "utf8");
const name = basename(file);
const marks = new WeakMap();

function mark(by) {
  return (value) => {
    const frame = new Error().stack.split("\n")[2];
    const [, line, column] = /:(\d+):(\d+)\)?$/.exec(frame);
    if (value !== null && typeof value === "object") marks.set(value, { by, at: { file: name, line: +line, column: +column } });
    return value;
  };
}

function place(source) {
  const before = text.slice(0, Math.max(0, text.indexOf(source))).split("\n");
  return { file: name, line: before.length, column: before.at(-1).length + 1 };
}

function describe(v) {
  if (typeof v === "function") {
    const source = v.toString();
    return { $function: { at: place(source), params: v.length, source } };
  }
  if (v === null || typeof v === "string" || typeof v === "boolean" || Number.isFinite(v)) return v;
  if (Array.isArray(v)) return v.map(describe);
  if (typeof v !== "object") return { $type: typeof v };
  if (Object.getPrototypeOf(v) !== Object.prototype) return { $type: v.constructor?.name ?? "object" };
  const m = marks.get(v);
  const out = m ? { $keep: m.by, $at: m.at } : {};
  for (const [k, x] of Object.entries(v)) out[k] = describe(x);
  return out;
}

globalThis.Keep = { workflow: mark("workflow"), consumer: mark("consumer") };
const copy = join(mkdtempSync(join(tmpdir(), "describe-")), "script.mjs");
writeFileSync(copy, text);
const module = await import(pathToFileURL(copy));
console.log(JSON.stringify(describe(module.default), null, 1));
