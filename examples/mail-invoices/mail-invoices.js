// What an invoice says of itself, in the lines of its mail.
const patterns = {
  number: /^\s*(?:invoice|invoice number|invoice no\.?):\s*(\S.*?)\s*$/im,
  total: /^\s*(?:total|amount due):\s*(\S.*?)\s*$/im,
};

// quote writes one field of a CSV file.
const quote = (text) => `"${String(text).replaceAll('"', '""')}"`;

// Each invoice that comes into the mailbox becomes one line of invoices.csv, and its mail goes to Archive.
export default Keep.workflow({
  name: "mail-invoices",
  topics: { mail: {}, archive: {} },

  producers: {
    // The cursor is where the last look ended; it is kept with the events of this look,
    // or not at all.
    async newMail(ctx) {
      let cursor = (await ctx.kv.get("cursor")) ?? null;
      let page;
      do {
        page = await ctx.mail.search({ folder: "INBOX", subject: "invoice", cursor });
        for (const m of page) {
          // m.id, the mailbox's own: senders choose a Message-ID, and may give the same one to two invoices.
          const inputId = await ctx.registerInput({ source: "mail", type: "mail", id: m.id, title: m.subject ?? m.id });
          await ctx.publish("mail", { messageId: m.id, inputId, payload: { id: m.id } });
        }
        cursor = page.next;
      } while (page.truncated);
      await ctx.kv.set("cursor", cursor);
    },
  },

  consumers: {
    addLine: Keep.consumer({
      subscribe: ["mail"],

      // Reads the mail and decides. What it returns is pinned.
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const mail = await ctx.mail.get({ id: trigger.payload.id });
        const number = patterns.number.exec(mail.text ?? "")?.[1];
        const total = patterns.total.exec(mail.text ?? "")?.[1] ?? "";
        const line = number && [number, total, mail.from?.address ?? "", ...mail.problems].map(quote).join(",") + "\n";
        return {
          reservations: [{ topic: "mail", ids: [trigger.messageId] }],
          data: { key: trigger.messageId, line, id: mail.id, message_id: mail.message_id },
          ui: { title: line ? `Add invoice ${number}` : `${mail.subject} is no invoice` },
        };
      },

      async mutate(ctx, prepared) {
        const { line } = prepared.data;
        if (line) await ctx.out.append({ name: "invoices.csv", text: line });
      },

      async next(ctx, prepared, result) {
        const { key, id, message_id } = prepared.data;
        if (result.status === "applied") await ctx.publish("archive", { messageId: key, payload: { id, message_id } });
      },
    }),

    // The mail leaves INBOX when its line is there. With message_id a move whose answer is
    // lost is found in Archive.
    archive: Keep.consumer({
      subscribe: ["archive"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return { reservations: [{ topic: "archive", ids: [trigger.messageId] }], data: trigger.payload };
      },
      async mutate(ctx, prepared) {
        const { id, message_id } = prepared.data;
        await ctx.mail.move({ id, to: "Archive", ...(message_id && { message_id }) });
      },
    }),
  },
});
