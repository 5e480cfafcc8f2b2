export default Keep.workflow({
  name: "example",

  topics: {
    "email.received": {},
    "row.created": {},
  },

  producers: {
    async pollEmail(ctx) {
      const emails = await ctx.gmail.search({ query: "newer_than:24h" });
      for (const e of emails) {
        await ctx.publish("email.received", {
          messageId: e.id,
          subject: e.subject,
          from: e.from,
        });
      }
    }
  },

  consumers: {
    myConsumer: Keep.consumer({
      subscribe: ["email.received"],

      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "email.received", ids: [trigger.messageId] }],
          data: { id: trigger.messageId, subject: trigger.payload.subject },
        };
      },

      async mutate(ctx, prepared) {},

      async next(ctx, prepared, mutationResult) {
        await ctx.publish("row.created", { messageId: `row:${prepared.data.id}`, ...prepared.data });
      },
    })
  }
});
