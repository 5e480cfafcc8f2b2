// URL and URLSearchParams for scripts: the interface here, the algorithms in
// whatwg-url. The wrappers which that package generates from WebIDL are ten
// times the size of these and do the same for ordinary use.
import { implementation as URLImpl } from "whatwg-url/URL-impl";
import { implementation as ParamsImpl } from "whatwg-url/URLSearchParams-impl";

const text = (v) => String(v).toWellFormed();
const adopt = Symbol("adopt"); // makes params of a URL, not a copy

class URLSearchParams {
  #impl;

  constructor(init = "", impl = undefined) {
    if (init === adopt) {
      this.#impl = impl;
      return;
    }
    let list = init;
    if (init !== null && typeof init === "object") {
      if (typeof init[Symbol.iterator] === "function") {
        list = Array.from(init, (pair) => Array.from(pair, text));
      } else {
        list = { __proto__: null };
        for (const key of Object.keys(init)) list[text(key)] = text(init[key]);
      }
    } else {
      list = text(init);
    }
    this.#impl = new ParamsImpl(globalThis, [list], { doNotStripQMark: false });
  }

  get size() { return this.#impl.size; }
  append(name, value) { this.#impl.append(text(name), text(value)); }
  delete(name, value = undefined) { this.#impl.delete(text(name), value === undefined ? undefined : text(value)); }
  get(name) { return this.#impl.get(text(name)); }
  getAll(name) { return this.#impl.getAll(text(name)); }
  has(name, value = undefined) { return this.#impl.has(text(name), value === undefined ? undefined : text(value)); }
  set(name, value) { this.#impl.set(text(name), text(value)); }
  sort() { this.#impl.sort(); }
  toString() { return this.#impl.toString(); }
  forEach(callback, self = undefined) {
    for (const [name, value] of this) callback.call(self, value, name, this);
  }
  *entries() { for (const pair of this.#impl) yield [pair[0], pair[1]]; }
  *keys() { for (const pair of this.#impl) yield pair[0]; }
  *values() { for (const pair of this.#impl) yield pair[1]; }
  [Symbol.iterator]() { return this.entries(); }
  get [Symbol.toStringTag]() { return "URLSearchParams"; }
}

class URL {
  #impl;
  #params;

  constructor(url, base = undefined) {
    this.#impl = new URLImpl(globalThis, [text(url), base === undefined ? undefined : text(base)]);
  }

  static canParse(url, base = undefined) {
    return URLImpl.canParse(text(url), base === undefined ? undefined : text(base));
  }
  static parse(url, base = undefined) {
    return URL.canParse(url, base) ? new URL(url, base) : null;
  }

  get searchParams() { return this.#params ??= new URLSearchParams(adopt, this.#impl.searchParams); }
  toString() { return this.#impl.href; }
  toJSON() { return this.#impl.href; }
  get [Symbol.toStringTag]() { return "URL"; }

  get origin() { return this.#impl.origin; }
  get href() { return this.#impl.href; }
  set href(v) { this.#impl.href = text(v); }
  get protocol() { return this.#impl.protocol; }
  set protocol(v) { this.#impl.protocol = text(v); }
  get username() { return this.#impl.username; }
  set username(v) { this.#impl.username = text(v); }
  get password() { return this.#impl.password; }
  set password(v) { this.#impl.password = text(v); }
  get host() { return this.#impl.host; }
  set host(v) { this.#impl.host = text(v); }
  get hostname() { return this.#impl.hostname; }
  set hostname(v) { this.#impl.hostname = text(v); }
  get port() { return this.#impl.port; }
  set port(v) { this.#impl.port = text(v); }
  get pathname() { return this.#impl.pathname; }
  set pathname(v) { this.#impl.pathname = text(v); }
  get search() { return this.#impl.search; }
  set search(v) { this.#impl.search = text(v); }
  get hash() { return this.#impl.hash; }
  set hash(v) { this.#impl.hash = text(v); }
}

const define = (name, value) =>
  Object.defineProperty(globalThis, name, { __proto__: null, value, writable: true, enumerable: false, configurable: true });
define("URL", URL);
define("URLSearchParams", URLSearchParams);
