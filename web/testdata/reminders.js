// One item for each unpaid order.
export default Keep.workflow({
  name: "reminders",
  topics: {},
  jobs: {
    remind: {
      schedule: { interval: "1h" },
      async handler(ctx) {
        for (const o of await ctx.desk.orders({})) {
          await ctx.withItem(`order:${o.id}`, `Remind ${o.who}`, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.desk.remind({ order: o.id, to: o.who, amount: o.amount });
          });
        }
      },
    },
  },
});
