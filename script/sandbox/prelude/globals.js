// The web platform's globals that a script may expect, as far as they make
// sense without a network, timers or a clock of their own. Evaluated before
// keep.js; the rules that its head gives for living with a hostile script
// apply here too.
(function (host) {
  "use strict";

  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const { getPrototypeOf, ownKeys, getOwnPropertyDescriptor, defineProperty } = Reflect;
  const { isArray } = Array;
  const { isView } = ArrayBuffer;
  const ObjectPrototype = Object.prototype, RegExpCtor = RegExp, DateCtor = Date;
  const StringOf = String, MapCtor = Map, SetCtor = Set, ErrorCtor = Error, TypeErrorCtor = TypeError, RangeErrorCtor = RangeError;
  const Bytes = Uint8Array, DataViewCtor = DataView, PromiseCtor = Promise, ObjectCtor = Object;
  const Exception = DOMException;
  const { stringify } = JSON;
  const slice = uncurry(String.prototype.slice);
  const wellFormed = uncurry(String.prototype.toWellFormed);
  const codeAt = uncurry(String.prototype.codePointAt);
  const lower = uncurry(String.prototype.toLowerCase);
  const trim = uncurry(String.prototype.trim);
  const padStart = uncurry(String.prototype.padStart);
  const numberText = uncurry(Number.prototype.toString);
  const mapGet = uncurry(Map.prototype.get), mapSet = uncurry(Map.prototype.set), mapHas = uncurry(Map.prototype.has);
  const mapEach = uncurry(Map.prototype.forEach), setEach = uncurry(Set.prototype.forEach), setAdd = uncurry(Set.prototype.add);
  const dateTime = uncurry(Date.prototype.getTime), dateISO = uncurry(Date.prototype.toISOString);
  const regText = uncurry(RegExp.prototype.toString);
  const enumerable = uncurry(ObjectPrototype.propertyIsEnumerable);
  const getter = (proto, name) => uncurry(getOwnPropertyDescriptor(proto, name).get);
  const regSource = getter(RegExp.prototype, "source"), regFlags = getter(RegExp.prototype, "flags");
  const mapSize = getter(Map.prototype, "size"), setSize = getter(Set.prototype, "size");
  const TypedArray = getPrototypeOf(Uint8Array), typed = TypedArray.prototype;
  const typedTag = getter(typed, Symbol.toStringTag), typedBuffer = getter(typed, "buffer");
  const typedOffset = getter(typed, "byteOffset"), typedBytes = getter(typed, "byteLength"), typedLength = getter(typed, "length");
  const typedSet = uncurry(typed.set);
  const viewBuffer = getter(DataView.prototype, "buffer"), viewOffset = getter(DataView.prototype, "byteOffset");
  const viewBytes = getter(DataView.prototype, "byteLength");
  const bufferBytes = getter(ArrayBuffer.prototype, "byteLength");
  const { random, digest, encode, decode } = host;

  // is reports whether f, a captured getter or method, accepts v as its own.
  const is = (f, v) => {
    try { f(v); return true; } catch { return false; }
  };

  const define = (name, value) =>
    defineProperty(globalThis, name, { __proto__: null, value, writable: true, enumerable: false, configurable: true });

  // ---- inspect ----

  const maxText = 8192, maxEntries = 100, maxDepth = 4;

  const quote = (v) => stringify(v);
  const { isError } = ErrorCtor;

  const showError = (v) => {
    const stack = v.stack, head = StringOf(v);
    return head + (typeof stack === "string" && stack !== "" ? "\n" + slice(stack, 0, 4096) : "");
  };

  const entries = (out, each) => {
    let text = "", n = 0, more = 0;
    each((part) => {
      if (n >= maxEntries || text.length > maxText) return void more++;
      text += (n++ > 0 ? ", " : "") + part();
    });
    if (more > 0) text += ", … " + more + " more";
    return text === "" ? out[0] + out[1] : out[0] + " " + text + " " + out[1];
  };

  const show = (v, depth, above) => {
    switch (typeof v) {
      case "string": return quote(v.length > maxText ? slice(v, 0, maxText) + "…" : v);
      case "bigint": return StringOf(v) + "n";
      case "function": return "[function" + (typeof v.name === "string" && v.name !== "" ? " " + v.name : "") + "]";
      case "object": break;
      default: return StringOf(v);
    }
    if (v === null) return "null";
    if (isError(v)) return showError(v);
    if (is(dateTime, v)) return dateTime(v) === dateTime(v) ? dateISO(v) : "Invalid Date";
    if (is(regSource, v) && v !== RegExpCtor.prototype) return regText(v);
    for (let a = above; a !== null; a = a.next) if (a.v === v) return "[circular]";
    if (depth > maxDepth) return isArray(v) ? "[…]" : "{…}";
    const up = { __proto__: null, v, next: above };
    const inner = (x) => show(x, depth + 1, up);
    if (isArray(v) || isView(v)) {
      const n = isArray(v) ? v.length : typedTag(v) === undefined ? 0 : typedLength(v);
      return entries(["[", "]"], (emit) => {
        for (let i = 0; i < n && i <= maxEntries; i++) emit(() => inner(v[i]));
      });
    }
    if (is(mapSize, v)) return "Map " + entries(["{", "}"], (emit) => mapEach(v, (x, k) => emit(() => inner(k) + " => " + inner(x))));
    if (is(setSize, v)) return "Set " + entries(["{", "}"], (emit) => setEach(v, (x) => emit(() => inner(x))));
    return showObject(v, inner);
  };

  const plainKey = new RegExp("^[A-Za-z_$][\\w$]*$");
  const test = uncurry(RegExp.prototype.exec);

  const showObject = (v, inner) => {
    const proto = getPrototypeOf(v);
    const c = proto === null || proto === ObjectPrototype ? undefined : v.constructor;
    const name = typeof c === "function" && typeof c.name === "string" && c.name !== "" ? c.name + " " : "";
    const keys = ownKeys(v);
    return name + entries(["{", "}"], (emit) => {
      for (let i = 0; i < keys.length; i++) {
        const k = keys[i];
        if (typeof k !== "string" || !enumerable(v, k)) continue;
        emit(() => (test(plainKey, k) === null ? quote(k) : k) + ": " + inner(v[k]));
      }
    });
  };

  // inspect shows any value as bounded text. What throws is shown as such.
  const inspect = (v) => {
    try {
      const s = show(v, 0, null);
      return s.length > 2 * maxText ? slice(s, 0, 2 * maxText) + "…" : s;
    } catch {
      return "[a value that cannot be shown]";
    }
  };
  host.inspect = inspect;

  // ---- console ----

  const logger = (level) => (...parts) => void host.logger(level, parts);
  define("console", {
    log: logger("info"), info: logger("info"), debug: logger("debug"), dir: logger("info"),
    warn: logger("warn"), error: logger("error"),
    trace(...parts) { host.logger("debug", ["Trace:", parts.length > 0 ? parts : "", new ErrorCtor().stack]); },
    assert(ok, ...parts) { if (!ok) host.logger("error", ["Assertion failed:", parts]); },
  });

  // ---- Bytes and text ----

  // bytesOf copies an ArrayBuffer, a typed array or a DataView.
  const bytesOf = (data, what) => {
    let view;
    if (isView(data)) {
      view = typedTag(data) === undefined
        ? new Bytes(viewBuffer(data), viewOffset(data), viewBytes(data))
        : new Bytes(typedBuffer(data), typedOffset(data), typedBytes(data));
    } else if (is(bufferBytes, data)) {
      view = new Bytes(data);
    } else {
      throw new TypeErrorCtor(what + " takes an ArrayBuffer or a view of one");
    }
    const copy = new Bytes(typedLength(view));
    typedSet(copy, view);
    return copy;
  };

  define("TextEncoder", class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(text = "") { return encode(wellFormed(StringOf(text))); }
    encodeInto(text, into) {
      // Character by character: what does not fit whole is left out.
      const s = wellFormed(StringOf(text));
      let read = 0, written = 0;
      const room = typedLength(into);
      while (read < s.length) {
        const code = codeAt(s, read);
        const n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        if (written + n > room) break;
        read += code < 0x10000 ? 1 : 2;
        written += n;
      }
      typedSet(into, encode(slice(s, 0, read)));
      return { read, written };
    }
  });

  define("TextDecoder", class TextDecoder {
    #fatal; #keepBOM; #rest = new Bytes(0); #started = false;
    constructor(label = "utf-8", options = undefined) {
      const name = lower(trim(StringOf(label)));
      if (name !== "utf-8" && name !== "utf8" && name !== "unicode-1-1-utf-8")
        throw new RangeErrorCtor('TextDecoder knows utf-8 only, not "' + name + '"');
      this.#fatal = !!options?.fatal;
      this.#keepBOM = !!options?.ignoreBOM;
    }
    get encoding() { return "utf-8"; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#keepBOM; }
    decode(data = undefined, options = undefined) {
      let bytes = data === undefined ? new Bytes(0) : bytesOf(data, "decode");
      if (typedLength(this.#rest) > 0) {
        const all = new Bytes(typedLength(this.#rest) + typedLength(bytes));
        typedSet(all, this.#rest);
        typedSet(all, bytes, typedLength(this.#rest));
        bytes = all;
      }
      const stream = !!options?.stream;
      const keep = stream ? unfinished(bytes) : 0, n = typedLength(bytes) - keep;
      const now = new Bytes(typedBuffer(bytes), 0, n), rest = new Bytes(typedBuffer(bytes), n);
      let text = decode(typedBuffer(bytesOf(now, "decode")), this.#fatal ? "fatal" : "");
      this.#rest = bytesOf(rest, "decode");
      if (text === undefined) {
        this.#rest = new Bytes(0);
        this.#started = false;
        throw new TypeErrorCtor("decode: the bytes are not UTF-8");
      }
      if (!this.#started && text.length > 0) {
        if (!this.#keepBOM && text[0] === "\uFEFF") text = slice(text, 1);
        this.#started = true;
      }
      if (!stream) this.#started = false;
      return text;
    }
  });

  // unfinished is how many bytes at the end begin a character that goes on.
  const unfinished = (bytes) => {
    const n = typedLength(bytes);
    for (let back = 1; back <= 3 && back <= n; back++) {
      const c = bytes[n - back];
      if (c < 0x80) return 0;
      if (c >= 0xC0) return back < (c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2) ? back : 0;
    }
    return 0;
  };

  // ---- crypto ----

  const hex = [];
  for (let i = 0; i < 256; i++) hex[i] = padStart(numberText(i, 16), 2, "0");

  const hashes = { __proto__: null, "sha-1": 1, "sha-256": 1, "sha-384": 1, "sha-512": 1 };
  const subtle = {
    async digest(algorithm, data) {
      const name = lower(StringOf(typeof algorithm === "object" && algorithm !== null ? algorithm.name : algorithm));
      if (!hashes[name]) throw new Exception('digest knows SHA-1, SHA-256, SHA-384 and SHA-512, not "' + name + '"', "NotSupportedError");
      return typedBuffer(digest(name, typedBuffer(bytesOf(data, "digest"))));
    },
  };
  define("crypto", {
    subtle,
    getRandomValues(array) {
      const tag = isView(array) ? typedTag(array) : undefined;
      if (tag === undefined || tag === "Float32Array" || tag === "Float64Array" || tag === "Float16Array")
        throw new TypeErrorCtor("getRandomValues takes an array of integers");
      const n = typedBytes(array);
      if (n > 65536) throw new Exception("getRandomValues gives at most 65536 bytes at a time", "QuotaExceededError");
      typedSet(new Bytes(typedBuffer(array), typedOffset(array), n), random(StringOf(n)));
      return array;
    },
    randomUUID() {
      const b = random("16");
      let s = "";
      for (let i = 0; i < 16; i++) {
        const v = i === 6 ? b[i] & 0x0f | 0x40 : i === 8 ? b[i] & 0x3f | 0x80 : b[i];
        s += (i === 4 || i === 6 || i === 8 || i === 10 ? "-" : "") + hex[v];
      }
      return s;
    },
  });

  // ---- structuredClone ----

  const cloneError = (what) => new Exception(what + " cannot be cloned", "DataCloneError");
  const errors = { __proto__: null, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, Error };
  const wrapped = [uncurry(Boolean.prototype.valueOf), uncurry(Number.prototype.valueOf), uncurry(StringOf.prototype.valueOf), uncurry(BigInt.prototype.valueOf)];

  const cloneBuffer = (v, seen) => {
    if (mapHas(seen, v)) return mapGet(seen, v);
    const copy = typedBuffer(bytesOf(v, "structuredClone"));
    mapSet(seen, v, copy);
    return copy;
  };

  const cloneView = (v, seen) => {
    const tag = typedTag(v);
    if (tag === undefined) return new DataViewCtor(cloneBuffer(viewBuffer(v), seen), viewOffset(v), viewBytes(v));
    return new views[tag](cloneBuffer(typedBuffer(v), seen), typedOffset(v), typedLength(v));
  };
  const views = { __proto__: null, Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array };
  if (typeof Float16Array === "function") views.Float16Array = Float16Array;

  const put = (o, key, value) => defineProperty(o, key, { __proto__: null, value, writable: true, enumerable: true, configurable: true });

  const cloneErrorObject = (v, seen) => {
    const name = StringOf(v.name);
    const copy = new (errors[name] ?? ErrorCtor)(v.message === undefined ? "" : StringOf(v.message));
    mapSet(seen, v, copy);
    const cause = getOwnPropertyDescriptor(v, "cause");
    if (cause !== undefined && "value" in cause)
      defineProperty(copy, "cause", { __proto__: null, value: clone(cause.value, seen), writable: true, enumerable: false, configurable: true });
    return copy;
  };

  const clone = (v, seen) => {
    if (typeof v === "function") throw cloneError("a function");
    if (typeof v === "symbol") throw cloneError("a symbol");
    if (typeof v !== "object" || v === null) return v;
    if (mapHas(seen, v)) return mapGet(seen, v);
    const leaf = cloneLeaf(v, seen);
    if (leaf !== undefined) {
      mapSet(seen, v, leaf);
      return leaf;
    }
    if (is(mapSize, v)) {
      const copy = new MapCtor(), keys = [], values = [];
      mapSet(seen, v, copy);
      mapEach(v, (x, k) => { put(keys, keys.length, k); put(values, values.length, x); });
      for (let i = 0; i < keys.length; i++) mapSet(copy, clone(keys[i], seen), clone(values[i], seen));
      return copy;
    }
    if (is(setSize, v)) {
      const copy = new SetCtor(), items = [];
      mapSet(seen, v, copy);
      setEach(v, (x) => put(items, items.length, x));
      for (let i = 0; i < items.length; i++) setAdd(copy, clone(items[i], seen));
      return copy;
    }
    if (isError(v)) return cloneErrorObject(v, seen);
    return cloneObject(v, seen);
  };

  // cloneLeaf clones what holds no other values.
  const cloneLeaf = (v, seen) => {
    if (is(dateTime, v)) return new DateCtor(dateTime(v));
    if (is(regSource, v) && v !== RegExpCtor.prototype) return new RegExpCtor(regSource(v), regFlags(v));
    if (is(bufferBytes, v)) return cloneBuffer(v, seen);
    if (isView(v)) return cloneView(v, seen);
    for (let i = 0; i < wrapped.length; i++) if (is(wrapped[i], v)) return ObjectCtor(wrapped[i](v));
    return undefined;
  };

  const cloneObject = (v, seen) => {
    for (let i = 0; i < brands.length; i++) if (brands[i].has(v)) throw cloneError("a " + brands[i].name);
    const copy = isArray(v) ? [] : {};
    mapSet(seen, v, copy);
    if (isArray(v)) copy.length = v.length;
    const keys = ownKeys(v);
    for (let i = 0; i < keys.length; i++)
      if (typeof keys[i] === "string" && enumerable(v, keys[i])) put(copy, keys[i], clone(v[keys[i]], seen));
    return copy;
  };
  const weakMapHas = uncurry(WeakMap.prototype.has), weakSetHas = uncurry(WeakSet.prototype.has);
  const deref = uncurry(WeakRef.prototype.deref);
  const brands = [
    { name: "WeakMap", has: (v) => is((x) => weakMapHas(x, x), v) },
    { name: "WeakSet", has: (v) => is((x) => weakSetHas(x, x), v) },
    { name: "WeakRef", has: (v) => is(deref, v) },
    { name: "Promise", has: (v) => v instanceof PromiseCtor },
  ];

  define("structuredClone", (value) => clone(value, new MapCtor()));

  // ---- URL ----

  // URL and URLSearchParams are a fifth of the prelude's memory, which is copied
  // for every phase, and few scripts use them: they are made when a script first
  // asks for one of them, which is before the script itself if its text says URL.
  const later = (name, other) => {
    const get = () => {
      const theirs = getOwnPropertyDescriptor(globalThis, other);
      host.url()();
      if (theirs === undefined) delete globalThis[other];
      else if (theirs.get !== getters[other]) defineProperty(globalThis, other, theirs);
      return globalThis[name];
    };
    getters[name] = get;
    defineProperty(globalThis, name, { __proto__: null, get, set: (v) => void define(name, v), enumerable: false, configurable: true });
  };
  const getters = { __proto__: null };
  later("URL", "URLSearchParams");
  later("URLSearchParams", "URL");

  // The clock stands still, and there is nothing to measure against.
  delete globalThis.performance;
  delete globalThis.SharedArrayBuffer;
})
