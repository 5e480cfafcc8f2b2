// toASCII of UTS #46 without its tables: the mapping is what the engine knows
// of Unicode (compatibility composition and lower case), so that names that
// people use come out right. Names that only a full table would refuse pass;
// the service that is called looks them up, and does not find them.
import { encode, decode } from "punycode";

const ignored = /[\u00AD\u200B\u2060\u2064\uFEFF\u180B-\u180D\uFE00-\uFE0F]/g;
const map = (s) => s.replace(ignored, "").normalize("NFKC").toLowerCase().normalize("NFKC").replace(/[\u3002\uFF0E\uFF61]/g, ".");
const bad = /[\u0000-\u001F\u200C-\u200F\u2028-\u202E\uFFFC\uFFFD\uD800-\uDFFF]/u;

function label(s) {
  if (s.startsWith("xn--")) {
    const u = decode(s.slice(4)); // throws if it is none
    if (u === "" || /^[\x00-\x7F]*$/.test(u) || map(u) !== u || bad.test(u)) throw new RangeError("not an IDNA label");
    return s;
  }
  if (/^[\x00-\x7F]*$/.test(s)) return s;
  if (bad.test(s) || /^\p{M}/u.test(s)) throw new RangeError("not an IDNA label");
  return "xn--" + encode(s);
}

export function toASCII(domain) {
  try {
    return map(domain).split(".").map(label).join(".");
  } catch {
    return null;
  }
}
