export default Keep.workflow({
  name: "contacts",
  topics: { found: {} },
  producers: {
    async feed(ctx) {
      for (const c of await ctx.crm.feed({}))
        await ctx.publish("found", { messageId: c.id, payload: c });
    },
  },
  consumers: {
    create: Keep.consumer({
      subscribe: ["found"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "found", ids: [event.messageId] }],
          data: event.payload,
          ui: { title: `Create ${event.payload.name}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.crm.create(prepared.data);
      },
      async next(ctx, prepared, result) {
        ctx.log("created", prepared.data.id, result.status);
      },
    }),
  },
});
