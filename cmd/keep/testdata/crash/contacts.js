export default Keep.workflow({
  name: "contacts",
  topics: { found: {}, made: {} },
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
        return { reservations: [{ topic: "found", ids: [event.messageId] }], data: event.payload };
      },
      async mutate(ctx, prepared) {
        const { id } = prepared.data;
        if (Number(id.slice(1)) % 2) await ctx.crm.witnessed(prepared.data);
        else await ctx.crm.keyed(prepared.data);
      },
      async next(ctx, prepared, result) {
        await ctx.publish("made", { messageId: prepared.data.id, status: result.status });
      },
    }),
  },
});
