// Counts on from where it stopped, and begins anew without its checkpoint.
export default Keep.workflow({
  name: "counter",
  topics: { counted: {}, elsewhere: {} },
  producers: {
    count: {
      schedule: { interval: "1h" },
      publishes: ["counted"],
      async handler(ctx) {
        const n = ((await ctx.kv.get("n")) ?? 0) + 1;
        await ctx.publish("counted", { messageId: `n${n}`, n });
        await ctx.kv.set("n", n);
        ctx.log(`counted to ${n}`);
      },
    },
  },
  consumers: {
    take: Keep.consumer({
      subscribe: ["counted"],
      async prepare(ctx, e) {
        return { reservations: e ? [{ topic: "counted", ids: [e.messageId] }] : [], data: {} };
      },
    }),
  },
});
