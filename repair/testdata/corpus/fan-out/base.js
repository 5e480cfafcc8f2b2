export default Keep.workflow({
  name: "split",
  topics: { order: {}, line: {} },
  consumers: {
    split: Keep.consumer({
      subscribe: ["order"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const lines = trigger.payload.lines.map((l) => ({ sku: l.sku.trim(), n: l.n }));
        return { reservations: [{ topic: "order", ids: [trigger.messageId] }], data: { id: trigger.messageId, lines } };
      },
      async next(ctx, prepared) {
        for (const l of prepared.data.lines) {
          await ctx.publish("line", { messageId: prepared.data.id + ":" + l.sku, payload: { sku: l.sku, n: l.n, source: "shop" } });
        }
      },
    }),
  },
});
