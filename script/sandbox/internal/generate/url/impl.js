// What whatwg-url's implementation classes need of their WebIDL wrappers. The
// import is late, because they and this module need each other.
import * as params from "whatwg-url/URLSearchParams-impl";

export const createImpl = (global, args, options) => new params.implementation(global, args, options ?? {});
