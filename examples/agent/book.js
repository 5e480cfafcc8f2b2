// Books each invoice that comes into inbox/, once. An agent wrote this; see README.md.
export default Keep.workflow({
  name: "book",
  topics: { invoice: {} },

  producers: {
    async look(ctx) {
      for (const file of await ctx.inbox.list({ glob: "invoice-*.txt" })) {
        await ctx.publish("invoice", { messageId: file.name });
      }
    },
  },

  consumers: {
    book: Keep.consumer({
      subscribe: ["invoice"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        const { text } = await ctx.inbox.read({ name: event.messageId });
        return {
          reservations: [{ topic: "invoice", ids: [event.messageId] }],
          data: { text: text.trim() },
          ui: { title: `Book ${event.messageId}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.ledger.write({ text: prepared.data.text });
      },
    }),
  },
});
