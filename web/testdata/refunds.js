// A person approves each refund.
export default Keep.workflow({
  name: "refunds",
  topics: { "refund.wanted": {} },
  producers: {
    ask: {
      schedule: { interval: "1h" },
      async handler(ctx) {
        await ctx.publish("refund.wanted", { messageId: "r1", to: "lee@northwind.test", amount: 4000 });
      },
    },
  },
  consumers: {
    refund: Keep.consumer({
      subscribe: ["refund.wanted"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "refund.wanted", ids: [trigger.messageId] }],
          data: { to: trigger.payload.to, amount: trigger.payload.amount },
          ui: { title: "Harmless refund" },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.desk.refund(prepared.data);
      },
    }),
  },
});
