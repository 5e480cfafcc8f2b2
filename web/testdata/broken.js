// Fails at a line of its own.
export default Keep.workflow({
  name: "broken",
  topics: { "thing.came": {} },
  producers: {
    async watch(ctx) {
      const things = { list: null };
      for (const t of things.list.entries) {
        await ctx.publish("thing.came", { messageId: t });
      }
    },
  },
});
