// Reads an invoice out of a mail as connection "files" returns it.

const labels = {
  number: /\b(invoice|rechnungsnummer|fakturanr|facture)/i,
  total: /\b(total|gesamtbetrag|att betala|amount due)\b/i,
  due: /(\bdue|^fällig|^förfallodatum|^échéance)/i,
};

const currencies = { "€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY" };

// parseInvoice returns the row for a mail, or null if the mail is no invoice.
// What can't be found is listed in row.warnings, and row.state is then "check".
export function parseInvoice(mail) {
  const fields = readFields(mail.text || htmlToText(mail.html));
  if (!fields.number) return null;
  const warnings = [...mail.warnings];
  const { amount, currency } = parseAmount(fields.total);
  const due = parseDate(fields.due);
  if (!amount || !currency) warnings.push("no total was found");
  if (!due) warnings.push("no due date was found");
  return {
    id: mail.messageId ?? mail.name,
    file: mail.name,
    sender: mail.from ? mail.from.name || mail.from.address : "",
    subject: mail.subject,
    number: fields.number,
    amount,
    currency,
    due,
    attachments: mail.attachments.map((a) => a.name).join(", "),
    state: warnings.length > 0 ? "check" : "ready",
    warnings: warnings.join("; "),
  };
}

// readFields finds the first line "label: value" of each kind. Lines of a
// forwarded mail may be quoted.
function readFields(text) {
  const fields = {};
  for (const line of text.split("\n")) {
    const [, label, value] = /^[>\s]*([^:]{1,60}):\s*(\S.*?)\s*$/.exec(line) ?? [];
    if (!label) continue;
    const kind = Object.keys(labels).find((k) => labels[k].test(label) && !(k in fields));
    if (kind) fields[kind] = value;
  }
  return fields;
}

// htmlToText keeps the lines and the cells of tables, which is all that
// readFields needs.
function htmlToText(html) {
  return html
    .replace(/<(style|script|head)\b[\s\S]*?<\/\1>/gi, "")
    .replace(/<\/t[dh]>\s*<t[dh]\b[^>]*>/gi, ": ")
    .replace(/<br\b[^>]*>|<\/(p|tr|div|li|h\d)>/gi, "\n")
    .replace(/<[^>]*>/g, "")
    .replace(/&nbsp;/g, " ")
    .replace(/&#(\d+);/g, (_, n) => String.fromCodePoint(n))
    .replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&quot;/g, '"').replace(/&amp;/g, "&");
}

// parseAmount understands 1,250.00 and 1.250,00 and 1 250,00. An amount stays a
// decimal string, since a number would round it.
function parseAmount(text = "") {
  const code = /\b(EUR|USD|GBP|JPY|SEK)\b/.exec(text)?.[1] ?? currencies[/[€$£¥]/.exec(text)?.[0]];
  const digits = /\d[\d.,\s]*/.exec(text)?.[0].trim() ?? "";
  const [, whole, cents] = /^(.*?)(?:[.,](\d{2}))?$/.exec(digits);
  const amount = whole.replace(/\D/g, "") + (cents ? "." + cents : "");
  return { amount: amount || null, currency: code ?? null };
}

// parseDate returns an ISO date. Dates with dots or slashes begin with the day.
function parseDate(text = "") {
  const iso = /\b(\d{4})-(\d\d)-(\d\d)\b/.exec(text);
  if (iso) return iso[0];
  const [, day, month, year] = /\b(\d\d?)[./](\d\d?)[./](\d{4})\b/.exec(text) ?? [];
  return year ? `${year}-${month.padStart(2, "0")}-${day.padStart(2, "0")}` : null;
}
