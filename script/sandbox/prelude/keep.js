// The part of the sandbox that is written in JavaScript: what a script sees of
// Keep, and the bookkeeping of its calls. It is evaluated once, before any
// script, and becomes part of every template.
//
// The script shares this realm. It may replace any global and any method of
// any prototype, so everything that is used after start-up is taken into a
// constant first, methods are called through `uncurry`, objects that are looked
// into have no prototype, and nothing here iterates, spreads or destructures
// arrays (that would go through Array.prototype). What a script breaks that
// way may be its own view of its own results, and nothing else: the host's
// errors never come in here, and its replies are matched by number.
//
// The host calls the functions that are returned at the end. The functions in
// `host` are its own: call, begin, end, done, fail, log, locate, where.
//
// A job may come to ten thousands of items, so what happens for each of them is
// kept short: no promise, closure or object more than it takes.
(function (host) {
  "use strict";

  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const { apply, defineProperty, getPrototypeOf, ownKeys, setPrototypeOf } = Reflect;
  const { parse, stringify } = JSON;
  const { freeze } = Object;
  const { isArray } = Array;
  const { captureStackTrace, isError } = Error;
  const ObjectPrototype = Object.prototype;
  const dateNow = Date.now;
  const isFinite = Number.isFinite;
  const slice = uncurry(String.prototype.slice);
  const includes = uncurry(String.prototype.includes), toWellFormed = uncurry(String.prototype.toWellFormed);
  const isWellFormed = uncurry(String.prototype.isWellFormed);
  const mapGet = uncurry(Map.prototype.get), mapSet = uncurry(Map.prototype.set), mapDelete = uncurry(Map.prototype.delete);
  const setHas = uncurry(Set.prototype.has), setAdd = uncurry(Set.prototype.add), setDelete = uncurry(Set.prototype.delete);
  const weakGet = uncurry(WeakMap.prototype.get), weakSet = uncurry(WeakMap.prototype.set);
  const fnText = uncurry(Function.prototype.toString);
  const getter = (name) => uncurry(Object.getOwnPropertyDescriptor(Function.prototype, name).get);
  const fnFile = getter("fileName"), fnLine = getter("lineNumber"), fnColumn = getter("columnNumber");
  const PromiseCtor = Promise, ProxyCtor = Proxy, ErrorCtor = Error, TypeErrorCtor = TypeError, StringOf = String;
  const { call: hostCall, begin: hostBegin, end: hostEnd, done: hostDone, fail: hostFail } = host;
  const { log: hostLog, locate: hostLocate, where: hostWhere } = host;
  const inspect = host.inspect;

  // Enough frames for a person, few enough to be cheap. Without its accessors a
  // script can neither change that nor hook the formatting.
  Error.stackTraceLimit = 20;
  delete Error.stackTraceLimit;
  const setPrepare = uncurry(Object.getOwnPropertyDescriptor(Error, "prepareStackTrace").set);
  delete Error.prepareStackTrace;
  const stackOf = uncurry(Object.getOwnPropertyDescriptor(Error.prototype, "stack").get);

  // A place is a line and a column of the script in one number, 0 if unknown.
  const placeOf = (line, column) => line * 0x1000000 + column;
  let script; // the name of the script's file
  const load = (name) => { script = name; };

  // place returns where in the script the innermost call of `called` is, a function
  // of ours. To look at one frame takes a tenth of the time of a whole stack.
  const place = (called) => {
    setPrepare(ErrorCtor, innermost);
    captureStackTrace(holder, called);
    setPrepare(ErrorCtor, undefined);
    return typeof holder.stack === "number" ? holder.stack : 0;
  };
  const holder = { __proto__: null, stack: 0 };
  const innermost = (_, sites) => {
    for (let i = 0; i < sites.length; i++)
      if (siteFile(sites[i]) === script) return placeOf(siteLine(sites[i]), siteColumn(sites[i]));
    return 0;
  };
  setPrepare(ErrorCtor, (_, sites) => sites[0]);
  const site = getPrototypeOf(stackOf(new ErrorCtor()));
  setPrepare(ErrorCtor, undefined);
  const siteFile = uncurry(site.getFileName), siteLine = uncurry(site.getLineNumber), siteColumn = uncurry(site.getColumnNumber);

  // ---- Running functions of the script ----

  // run calls f, and then exactly one of ok and bad, later.
  const run = async (f, self, args, ok, bad) => {
    let v;
    try {
      v = await apply(f, self, args);
    } catch (e) {
      return bad(e);
    }
    ok(v);
  };

  const cut = (v, max) => {
    let s = "";
    try {
      s = typeof v === "string" ? v : StringOf(v);
    } catch {
      s = "(a value that cannot be shown)";
    }
    return s.length > max ? slice(s, 0, max) + "… (cut)" : s;
  };

  // describeError turns anything thrown into plain bounded text.
  const describeError = (e) => {
    const d = { __proto__: null, name: "Thrown", message: "", stack: "" };
    try {
      if (e !== null && typeof e === "object" && e.message !== undefined) {
        d.name = cut(e.name === undefined ? "Error" : e.name, 128);
        d.message = cut(e.message, 4000);
        const stack = isError(e) ? stackOf(e) : e.stack;
        d.stack = typeof stack === "string" ? slice(stack, 0, 16000) : "";
        return d;
      }
      d.message = cut(inspect(e), 4000) + " (thrown, but not an Error)";
    } catch {
      d.message = "(an error that cannot be shown)";
    }
    return d;
  };

  const fail = (e) => void hostFail(stringify(describeError(e)));

  const finish = (v) => {
    let s = "";
    if (v !== undefined) {
      try {
        s = stringify(v);
      } catch (e) {
        const why = describeError(e);
        if (why.name === "InternalError") return fail(e); // of the engine: a limit
        return fail(new TypeErrorCtor("the handler returned a value that is not JSON: " + why.message));
      }
      if (s === undefined)
        return fail(new TypeErrorCtor("the handler returned a " + typeof v + ", which is not JSON"));
    }
    hostDone(s);
  };

  // ---- Calls ----

  const pending = new Map(); // number of a call -> what takes its result
  let calls = 0;

  // encode returns one line for each argument, after a newline each.
  const encode = (name, args) => {
    let text = "";
    for (let i = 0; i < args.length; i++) {
      const a = args[i];
      let s = "";
      if (a !== undefined) {
        try {
          s = stringify(a);
        } catch (e) {
          throw new TypeErrorCtor(name + ": argument " + (i + 1) + " is not JSON: " + describeError(e).message);
        }
        if (s === undefined) throw new TypeErrorCtor(name + ": argument " + (i + 1) + " is a " + typeof a + ", which is not JSON");
      }
      text += "\n" + s;
    }
    return text;
  };

  // Every promise of ours is made with this executor, which leaves its functions here.
  let resolved, rejected;
  const executor = (resolve, reject) => { resolved = resolve; rejected = reject; };

  // issue queues a call. Its taker is in place before the host knows of it.
  const issue = (scope, name, at, text, take) => {
    const id = ++calls;
    mapSet(pending, id, take);
    hostCall(id, scope, name, at, text);
  };

  const call = (called, scope, name, args) => {
    const p = new PromiseCtor(executor), resolve = resolved, reject = rejected;
    try {
      issue(scope, name, place(called), encode(name, args), resolve);
    } catch (e) {
      reject(e);
    }
    return p;
  };

  const resume = (id, v) => {
    const take = mapGet(pending, id);
    mapDelete(pending, id);
    take(listed(v));
  };

  // listed returns a list that was read in pages as an array that knows how far it got:
  // JSON has no such arrays, so it comes as an object. One with other members is what a service answered.
  const listed = (v) => {
    if (typeof v !== "object" || v === null || !isArray(v.$list)) return v;
    const names = ownKeys(v);
    for (let i = 0; i < names.length; i++) if (names[i] !== "$list" && names[i] !== "truncated" && names[i] !== "next") return v;
    const list = v.$list;
    defineProperty(list, "truncated", { __proto__: null, value: v.truncated === true });
    defineProperty(list, "next", { __proto__: null, value: v.next ?? null });
    return list;
  };

  // ---- Items ----

  let scopes = 0;
  let current = null; // the item that is open, or being opened
  let first = null, last = null; // those that wait for their turn

  const open = () => {
    const item = current = first;
    first = item.next;
    if (first === null) last = null;
    if (item.text === "") hostBegin(item.at, item.id, item.title);
    else hostCall(0, 0, "item.begin", item.at, item.text);
  };

  // What the host knows of an item is the same for most items of a job.
  let knownText = "", known = { __proto__: null };

  // begun takes what the host knows of the item that is being opened.
  const begun = (text) => {
    const item = current, scope = item.scope = ++scopes;
    if (text !== knownText) {
      const answer = text === "" ? null : parse(text);
      known = typeof answer === "object" && answer !== null ? answer : {};
      setPrototypeOf(known, null);
      knownText = text;
    }
    if (known.isBlocked === true) return close(); // its handler does not run
    const { title = item.title, attempt, status, isDone } = known;
    const ctx = makeCtx(scope, { id: item.id, title, attempt, status, isDone });
    item.entering = true;
    handle(item, ctx);
    item.entering = false;
  };

  const handle = async (item, ctx) => {
    const fn = item.fn;
    try {
      item.value = await fn(ctx);
    } catch (e) {
      item.failed = true;
      return issue(item.scope, "item.fail", item.at, "\n" + stringify(describeError(e)), close);
    }
    hostEnd();
  };

  // close is called when the host has ended the item that is open. That is when
  // its handler has settled and whatever it started has come to rest.
  const close = () => {
    const item = current;
    current = null;
    item.resolve(item.value);
    if (first !== null) open();
  };

  const asJSON = (v) => (v === undefined ? v : parse(stringify(v)));

  // nested tells the host of an item inside of an item, which it refuses.
  const nested = (scope, item) =>
    issue(scope, "item.begin", item.at, encode("withItem", [item.id, item.title]), () => item.reject(new TypeErrorCtor("items cannot be nested")));

  const withItem = (called, scope, id, title, fn) => {
    const p = new PromiseCtor(executor), resolve = resolved, reject = rejected;
    try {
      if (typeof fn !== "function") throw new TypeErrorCtor("withItem(id, title, handler): the handler is not a function");
      let text = "";
      if (typeof id === "string" && typeof title === "string" && isWellFormed(id)) {
        title = toWellFormed(title);
      } else { // what JSON makes of them may still be text, and the host says if not
        text = encode("withItem", [id, title]);
        id = asJSON(id);
        title = asJSON(title);
      }
      const item = {
        __proto__: null, at: place(called), id, title, text, fn, resolve, reject,
        scope: 0, next: null, entering: false, failed: false, value: undefined,
      };
      if (scope !== 0) nested(scope, item);
      else if (current !== null && current.entering) nested(current.scope, item);
      else {
        if (first === null) first = item; else last.next = item;
        last = item;
        if (current === null) open();
      }
    } catch (e) {
      reject(e);
    }
    return p;
  };

  // idle is called when nothing is runnable, no call waits and an item is open whose
  // handler has not settled. If another item waits for it to end, then the handler
  // waits for that item, which is therefore nested.
  const idle = () => {
    const item = current;
    if (item === null || first === null || item.failed || item.scope === 0) return;
    const inner = first;
    first = inner.next;
    if (first === null) last = null;
    nested(item.scope, inner);
  };

  // ---- ctx ----

  // Names that JavaScript itself asks objects for. They are not tools.
  const hidden = { __proto__: null, then: true, toJSON: true };
  const names = ownKeys(ObjectPrototype);
  for (let i = 0; i < names.length; i++) hidden[names[i]] = true;

  const readOnly = (what) => {
    const refuse = (_, key) => { throw new TypeErrorCtor(what + "." + StringOf(key) + " cannot be changed"); };
    return { __proto__: null, set: refuse, defineProperty: refuse, deleteProperty: refuse, setPrototypeOf: () => false };
  };

  const tool = (scope, name) => {
    const f = (...args) => call(f, scope, name, args);
    return f;
  };

  // connection is callable (ctx.publish) and has tools (ctx.crm.create).
  const connection = (scope, name) => {
    const tools = { __proto__: null };
    const handler = readOnly("ctx." + name);
    handler.get = (_, key) => {
      if (typeof key !== "string" || hidden[key]) return undefined;
      return tools[key] ??= tool(scope, name + "." + key);
    };
    return new ProxyCtor(tool(scope, name), handler);
  };

  // A ctx is a proxy for an object that the script cannot see, and all of them share
  // their traps. It has four properties, and a connection of any other name.
  const ctxLog = (...parts) => void log("info", parts);
  const ctxNow = () => dateNow();
  const itemsOf = (scope) => {
    const f = (id, title, fn) => withItem(f, scope, id, title, fn);
    return f;
  };
  const ctxGet = (own, key) => {
    switch (key) {
      case "item": return own.item;
      case "log": return ctxLog;
      case "now": return ctxNow;
      case "withItem": return own.withItem ??= itemsOf(own.scope);
    }
    // A dot would let a script make calls that only Keep makes: item.end.
    if (typeof key !== "string" || hidden[key] || includes(key, ".")) return undefined;
    return (own.connections ??= { __proto__: null })[key] ??= connection(own.scope, key);
  };
  const ctxHas = (_, key) => key === "item" || key === "log" || key === "now" || key === "withItem";
  const ctxTraps = freeze({
    __proto__: null, ...readOnly("ctx"), get: ctxGet, has: ctxHas,
    ownKeys: () => ["item", "log", "now", "withItem"],
    getOwnPropertyDescriptor: (own, key) =>
      ctxHas(own, key) ? { __proto__: null, value: ctxGet(own, key), writable: true, enumerable: true, configurable: true } : undefined,
    preventExtensions: () => false,
  });

  const makeCtx = (scope, item) =>
    new ProxyCtor({ __proto__: null, scope, item, withItem: undefined, connections: undefined }, ctxTraps);

  // ---- Log ----

  const log = (level, parts) => {
    let text = "";
    for (let i = 0; i < parts.length; i++) {
      if (i > 0) text += " ";
      text += typeof parts[i] === "string" ? parts[i] : inspect(parts[i]);
    }
    hostLog(level, place(log), text);
  };
  host.logger = log;

  // ---- Declaration ----

  const marks = new WeakMap(); // object -> {kind, at}
  const marker = (kind) => {
    const mark = (definition) => {
      if (definition === null || typeof definition !== "object")
        throw new TypeErrorCtor("Keep." + kind + "({...}) takes an object");
      weakSet(marks, definition, { __proto__: null, kind, at: place(mark) });
      return definition;
    };
    return mark;
  };
  // What Keep does not have is said where it is used: the engine alone would say "not a function".
  const keepTraps = freeze({
    __proto__: null,
    get(keep, name) {
      const value = keep[name];
      if (value !== undefined || typeof name !== "string" || name === "then" || name === "toJSON") return value;
      throw new TypeErrorCtor("there is no Keep." + cut(name, 128) +
        ": there are Keep.workflow and Keep.consumer; a job or a producer is a function, or { schedule, handler }");
    },
  });
  defineProperty(globalThis, "Keep", {
    __proto__: null, value: new ProxyCtor(freeze({ workflow: marker("workflow"), consumer: marker("consumer") }), keepTraps),
    writable: false, enumerable: false, configurable: false,
  });

  const maxDepth = 64, maxSource = 64 << 10, maxDeclaration = 8 << 20;
  const reserved = { __proto__: null, $function: true, $type: true, $keep: true, $at: true };
  const typeTag = (name) => '{"$type":' + stringify(cut(name, 128)) + "}";

  const describeFunction = (f) => {
    let at = "null";
    if (fnFile(f) === script) at = hostLocate(placeOf(fnLine(f), fnColumn(f)), "");
    const params = typeof f.length === "number" && isFinite(f.length) ? f.length : 0;
    return '{"$function":{"at":' + at + ',"params":' + params + ',"source":' + stringify(slice(fnText(f), 0, maxSource)) + "}}";
  };

  const className = (v) => {
    const c = v.constructor;
    return typeof c === "function" && typeof c.name === "string" && c.name !== "" ? c.name : "object";
  };

  // Paths are for people: `consumers.addRow`.
  const joined = (path, key) => (path === "" ? key : path + "." + key);

  // describe returns the JSON of v, or undefined where JSON has nothing.
  let described = 0;
  const describe = (v, path, depth, above) => {
    switch (typeof v) {
      case "undefined": return undefined;
      case "string": case "boolean": return stringify(v);
      case "number": return isFinite(v) ? stringify(v) : typeTag(StringOf(v));
      case "function": return describeFunction(v);
      case "object": break;
      default: return typeTag(typeof v);
    }
    if (v === null) return "null";
    const proto = getPrototypeOf(v);
    const list = isArray(v);
    if (!list && proto !== null && proto !== ObjectPrototype) return typeTag(className(v));
    if (setHas(above, v)) throw new TypeErrorCtor("the workflow contains itself at " + path);
    if (depth > maxDepth) throw new TypeErrorCtor("the workflow is nested deeper than " + maxDepth + " levels at " + cut(path, 200));
    setAdd(above, v);
    const text = list ? describeList(v, path, depth, above) : describeObject(v, path, depth, above);
    setDelete(above, v);
    if ((described += text.length) > maxDeclaration) throw new TypeErrorCtor("the workflow's declaration is too large");
    return text;
  };

  const describeList = (v, path, depth, above) => {
    let text = "";
    for (let i = 0; i < v.length; i++) {
      const s = describe(v[i], path + "[" + i + "]", depth + 1, above);
      text += (i > 0 ? "," : "") + (s === undefined ? "null" : s);
      if (text.length > maxDeclaration) throw new TypeErrorCtor("the workflow's declaration is too large");
    }
    return "[" + text + "]";
  };

  const describeObject = (v, path, depth, above) => {
    let text = "";
    const mark = weakGet(marks, v);
    if (mark !== undefined) text = '"$keep":"' + mark.kind + '","$at":' + hostLocate(mark.at, mark.kind);
    const keys = ownKeys(v);
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      if (typeof key !== "string" || !isEnumerable(v, key)) continue;
      if (reserved[key]) throw new TypeErrorCtor('the key "' + key + '" at ' + joined(path, key) + " is reserved");
      const s = describe(v[key], joined(path, key), depth + 1, above);
      if (s !== undefined) text += (text === "" ? "" : ",") + stringify(key) + ":" + s;
      if (text.length > maxDeclaration) throw new TypeErrorCtor("the workflow's declaration is too large");
    }
    return "{" + text + "}";
  };
  const isEnumerable = uncurry(ObjectPrototype.propertyIsEnumerable);

  // The bundle's variable, so that it is not listed among the globals.
  defineProperty(globalThis, "__keep_module", { __proto__: null, value: undefined, writable: true, enumerable: false, configurable: false });

  let root; // what Keep.workflow returned
  const declare = () => {
    const module = globalThis.__keep_module;
    try {
      globalThis.__keep_module = undefined;
      root = module === undefined || module === null ? undefined : module.default;
      const mark = root !== null && typeof root === "object" ? weakGet(marks, root) : undefined;
      if (root === undefined)
        throw new TypeErrorCtor("the script has no default export: write export default Keep.workflow({ name: ..., ... })");
      if (mark === undefined || mark.kind !== "workflow")
        throw new TypeErrorCtor("the default export is not a workflow: write export default Keep.workflow({ name: ..., ... })");
      hostDone(describe(root, "", 0, new Set()));
    } catch (e) {
      fail(e);
    }
  };

  // ---- Start ----

  // The engine's own generator is part of the template and would give the same
  // numbers in every phase. sfc32, whose whole state comes from the host.
  let a = 1, b = 2, c = 3, d = 1;
  const random = () => {
    const t = (a + b | 0) + d | 0;
    d = d + 1 | 0;
    a = b ^ b >>> 9;
    b = c + (c << 3) | 0;
    c = (c << 21 | c >>> 11) + t | 0;
    return t >>> 0;
  };
  Math.random = () => ((random() >>> 5) * 67108864 + (random() >>> 6)) / 9007199254740992;

  // start begins a phase. m is [path, a, b, c, d, args]; each argument is
  // wrapped in an array, which is empty for undefined, and the first is ctx, but in a
  // pure call, which has a 1 more.
  const start = (m) => {
    const path = m[0], args = m[5];
    a = m[1]; b = m[2]; c = m[3]; d = m[4];
    let self, f = root, name = "";
    for (let i = 0; i < path.length; i++) {
      self = f;
      name = joined(name, path[i]);
      f = f === undefined || f === null ? undefined : f[path[i]];
    }
    if (typeof f === "object" && f !== null) { self = f; f = f.handler; }
    if (typeof f !== "function") return fail(new TypeErrorCtor("the workflow has no function at " + name));
    for (let i = 0; i < args.length; i++) args[i] = args[i].length === 0 ? undefined : args[i][0];
    if (m[6] !== 1) args[0] = makeCtx(0, undefined);
    if (fnFile(f) === script) hostWhere(placeOf(fnLine(f), fnColumn(f)));
    run(f, self, args, finish, fail);
  };

  const where = () => hostWhere(place(where));

  return { __proto__: null, load, declare, start, resume, begun, close, idle, fail, where };
})
