// Each invoice in the inbox becomes one row of a sheet; then its mail gets a label.
const SHEET = { spreadsheetId: "1invoices", sheetId: 0 };
const DONE = "Label_invoices";

// textOf returns the text of a mail of one part, which Gmail gives in base64url.
function textOf(mail) {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const bytes = [];
  let bits = 0, n = 0;
  for (const c of (mail?.payload.body?.data ?? "").replace(/=+$/, "")) {
    bits = (bits << 6) | letters.indexOf(c);
    if ((n += 6) >= 8) bytes.push((bits >> (n -= 8)) & 255);
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}

export default Keep.workflow({
  name: "mail-to-sheet",
  topics: { mails: {}, rows: {} },

  producers: {
    async inbox(ctx) {
      for (const m of await ctx.mailbox.list({ labelIds: ["INBOX"] })) await ctx.publish("mails", { messageId: m.id, payload: { id: m.id } });
    },
  },

  consumers: {
    row: Keep.consumer({
      subscribe: ["mails"],
      publishes: ["rows"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        const mail = await ctx.mailbox.get({ id: event.payload.id, format: "full" });
        const text = textOf(mail);
        const header = (name) => mail?.payload.headers.find((h) => h.name.toLowerCase() === name)?.value ?? "";
        const number = /^Invoice: (.+)$/m.exec(text)?.[1].trim();
        const total = /^Total: ([0-9.]+) ([A-Z]{3})$/m.exec(text);
        const row = number && total ? [number, header("from"), Number(total[1]), total[2]] : null;
        return {
          reservations: [{ topic: "mails", ids: [event.messageId] }],
          data: { id: event.payload.id, row },
          ui: { title: row ? `Invoice ${number}` : `No invoice: ${header("subject")}` },
        };
      },
      async mutate(ctx, { data: { row } }) {
        if (row) await ctx.sheet.appendRow({ ...SHEET, values: row });
      },
      async next(ctx, { data: { id } }, result) {
        if (result.status === "applied") await ctx.publish("rows", { messageId: id, payload: { id } });
      },
    }),

    label: Keep.consumer({
      subscribe: ["rows"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "rows", ids: [event.messageId] }], data: event.payload };
      },
      async mutate(ctx, { data: { id } }) {
        await ctx.mailbox.modify({ id, addLabelIds: [DONE] });
      },
    }),
  },
});
