// percentEncodeAfterEncoding of @exodus/bytes, for UTF-8 only. That is what
// URL uses, whatever the encoding of a page: there are no pages here.
const hex = "0123456789ABCDEF";

export function percentEncodeAfterEncoding(_encoding, input, set) {
  let output = "";
  for (const byte of new TextEncoder().encode(input)) {
    const c = String.fromCharCode(byte);
    output += byte <= 0x1f || byte > 0x7e || set.includes(c) ? "%" + hex[byte >> 4] + hex[byte & 15] : c;
  }
  return output;
}
