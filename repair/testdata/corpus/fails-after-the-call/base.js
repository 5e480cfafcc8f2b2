export default Keep.workflow({
  name: "tickets",
  topics: { issue: {}, done: {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["issue"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return { reservations: [{ topic: "issue", ids: [trigger.messageId] }], data: trigger.payload };
      },
      async mutate(ctx, prepared) {
        await ctx.svc.pay({ ref: prepared.data.ref, to: prepared.data.to, amount: 1, currency: "EUR" });
      },
      async next(ctx, prepared, result) {
        await ctx.publish("done", { messageId: "done:" + prepared.data.ref, payload: { tag: prepared.data.tags[0].name.trim() } });
      },
    }),
  },
});
