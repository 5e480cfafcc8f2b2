export default Keep.workflow({
  name: "contacts",
  topics: { found: {}, made: {} },
  producers: {
    async feed(ctx) {
      for (const c of await ctx.feed.list({}))
        await ctx.publish("found", { messageId: c.id, payload: c });
    },
  },
  consumers: {
    create: Keep.consumer({
      subscribe: ["found"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "found", ids: [event.messageId] }], data: event.payload };
      },
      // The first letter of an id is the level of the tool.
      async mutate(ctx, prepared) {
        switch (prepared.data.id[0]) {
          case "a": await ctx.a.create(prepared.data); break;
          case "c": await ctx.c.create(prepared.data); break;
          default: await ctx.d.create(prepared.data);
        }
      },
      async next(ctx, prepared, result) {
        await ctx.publish("made", { messageId: prepared.data.id, status: result.status });
      },
    }),
  },
});
