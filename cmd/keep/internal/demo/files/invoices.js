// Pays invoices, each of them once. Made by keep demo.
export default Keep.workflow({
  name: "invoices",
  topics: { due: {}, paid: {} },
  producers: {
    async read(ctx) {
      for (const invoice of await ctx.bank.invoices({}))
        await ctx.publish("due", { messageId: invoice.id, payload: invoice });
    },
  },
  consumers: {
    pay: Keep.consumer({
      subscribe: ["due"],
      publishes: ["paid"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "due", ids: [trigger.messageId] }],
          data: trigger.payload,
          ui: { title: `Pay ${trigger.messageId}` },
        };
      },
      async mutate(ctx, prepared) {
        const { id, amount, to, by } = prepared.data;
        if (by === "fax") await ctx.bank.fax({ invoice: id, amount, to });
        else await ctx.bank.pay({ invoice: id, amount, to });
      },
      async next(ctx, prepared, mutationResult) {
        await ctx.publish("paid", { messageId: prepared.data.id, status: mutationResult.status });
      },
    }),
  },
});
