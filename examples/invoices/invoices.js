import { parseInvoice } from "./lib/invoice.js";

// Every mail in the directory becomes at most one row. A mail that is no invoice
// becomes none. A broken invoice becomes a row whose state is "check", with what
// is wrong in its warnings: nothing is lost, and the mails behind it continue.
export default Keep.workflow({
  name: "invoices",
  topics: { mail: {} },

  producers: {
    // The same name is the same event, so it does no harm to list all mails
    // each time.
    async newMail(ctx) {
      let page = [];
      do {
        page = await ctx.inbox.list({ glob: "*.eml", after: page.at(-1)?.name ?? "", limit: 1000 });
        for (const { name } of page) {
          const inputId = await ctx.registerInput({ source: "inbox", type: "mail", id: name, title: name });
          await ctx.publish("mail", { messageId: name, inputId, payload: { name } });
        }
      } while (page.length === 1000);
    },
  },

  consumers: {
    addRow: Keep.consumer({
      subscribe: ["mail"],

      // Reads the mail and decides. What it returns is pinned: the row that is
      // written later is this one, whatever becomes of the file.
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const mail = await ctx.inbox.readMail({ name: trigger.payload.name });
        const row = mail && parseInvoice(mail);
        const plan = (row, title) => ({
          reservations: [{ topic: "mail", ids: [trigger.messageId] }],
          data: { row },
          ui: { title },
        });
        if (!mail) return plan(null, `${trigger.payload.name} was removed before it was read`);
        if (!row) return plan(null, `${mail.name} is no invoice`);
        if (await ctx.db.getById({ table: "invoices", id: row.id })) {
          return plan(null, `${row.file} was delivered before`);
        }
        return plan(row, `Add invoice ${row.number} of ${row.sender}`);
      },

      async mutate(ctx, prepared) {
        const { row } = prepared.data;
        if (row) await ctx.db.insert({ table: "invoices", key: { id: row.id }, row });
      },
    }),
  },
});
