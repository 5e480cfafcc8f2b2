// Sends one request, and retries it until it knows what became of it. It acts once,
// however often it has to ask.

const attempts = 8;

/** Nobody can say what became of the request. Do not send it again under another key. */
export class OutcomeUnknown extends Error {}

export interface Answer {
  status: number;
  body: string;
}

/** Posts a body under a key until there is an answer to it. */
export async function send(url: string, key: string, body: string): Promise<Answer> {
  let doubt = false; // a try may have been executed
  for (let n = 0; n < attempts; n++) {
    let wait: string | null = null;
    let refused: Answer | null = null;
    try {
      const resp = await fetch(url, {
        method: "POST",
        headers: { ...credentials(), "Content-Type": "application/json", "Idempotency-Key": key },
        body,
      });
      wait = resp.headers.get("Retry-After");
      const text = await resp.text();
      const kind = kindOf(text);
      const known = kind === "outcome-unknown" ? await ask(url, text) : null;
      if (known !== null) return known;
      const again = kind === "in-progress" || kind === "outcome-unknown" || [425, 429, 502, 503, 504].includes(resp.status);
      if (!again) return { status: resp.status, body: text };
      if ([425, 429].includes(resp.status)) refused = { status: resp.status, body: text };
    } catch (e) {
      if (e instanceof OutcomeUnknown) throw e;
      // no answer: the same request with the same key is safe
    }
    doubt ||= refused === null;
    if (refused !== null && !doubt && n === attempts - 1) return refused; // as each try was
    await pause(n, wait);
  }
  throw new OutcomeUnknown("the outcome is unknown");
}

/**
 * Looks at the instance of a problem until it is known what became of the request. Returns its answer; null if the
 * request is to be sent again, since that is not shown there, or nothing was done.
 */
async function ask(url: string, problem: string): Promise<Answer | null> {
  const instance: unknown = JSON.parse(problem).instance;
  for (let n = 0; typeof instance === "string" && n < attempts; n++) {
    try {
      const resp = await fetch(new URL(instance, url), { headers: credentials() });
      const said = await resp.json();
      if (said.state === "done" || said.state === "released") {
        return (said.answer ?? null) && { status: said.answer.status, body: said.answer.body ?? "" };
      }
    } catch {
      // asked again
    }
    await pause(n, null);
  }
  throw new OutcomeUnknown("the outcome is unknown");
}

function credentials(): Record<string, string> {
  return { Authorization: "Bearer " + (process.env.API_TOKEN ?? "") };
}

/** Returns the last part of a problem's type; "" if text is none. */
function kindOf(text: string): string {
  try {
    return String(JSON.parse(text).type ?? "").split("/").pop() ?? "";
  } catch {
    return "";
  }
}

/** Waits before the next attempt: as long as the server asks, else longer and longer. */
function pause(n: number, retryAfter: string | null): Promise<void> {
  const asked = retryAfter === null ? NaN : Number(retryAfter) * 1000;
  const wait = asked >= 0 ? asked : 100 * 2 ** n;
  return new Promise((done) => setTimeout(done, Math.min(wait, 10_000)));
}

const [url, key, body] = process.argv.slice(2);
send(url, key, body).then(
  (a) => console.log(a.status, a.body),
  (e) => {
    console.error(String(e));
    process.exit(3);
  },
);
