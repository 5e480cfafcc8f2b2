// Reads a service that is down.
export default Keep.workflow({
  name: "flaky",
  topics: { "feed.item": {} },
  producers: {
    async read(ctx) {
      for (const i of await ctx.desk.down({})) await ctx.publish("feed.item", { messageId: i.id });
    },
  },
});
