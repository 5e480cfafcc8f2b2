// An item that fails after its call was made, and then says something else.
export default Keep.workflow({
  name: "letters",
  topics: {},
  jobs: {
    send: {
      schedule: { interval: "1h" },
      async handler(ctx) {
        for (const l of await ctx.desk.letters({})) {
          await ctx.withItem(`letter:${l.id}`, `Letter to ${l.who}`, async (ctx) => {
            if (ctx.item.isDone) return;
            await ctx.desk.remind({ order: "letter " + l.id, to: l.who, amount: l.amount });
            throw new Error("the printer is out of paper");
          });
        }
      },
    },
  },
});
