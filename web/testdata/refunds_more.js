// Refunds, and a mail about each.
export default Keep.workflow({
  name: "refunds",
  topics: { "refund.wanted": {} },
  consumers: {
    refund: Keep.consumer({
      subscribe: ["refund.wanted"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return { reservations: [{ topic: "refund.wanted", ids: [trigger.messageId] }], data: trigger.payload };
      },
      async mutate(ctx, prepared) {
        await ctx.desk.send(prepared.data);
      },
    }),
  },
});
