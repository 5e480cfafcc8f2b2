// Each mail becomes a reply, and each reply is archived. The service cannot be
// asked about replies (level D), and can about the archive (level C).
export default Keep.workflow({
  name: "mails",
  topics: { "mail.received": {}, "mail.answered": {} },

  producers: {
    poll: {
      schedule: { interval: "1h" },
      publishes: ["mail.received"],
      async handler(ctx) {
        for (const m of await ctx.desk.mails({})) {
          const inputId = await ctx.registerInput({ source: "desk", type: "mail", id: m.id, title: m.subject });
          await ctx.publish("mail.received", { messageId: m.id, inputId, payload: { from: m.from, subject: m.subject, text: m.text } });
        }
        ctx.log("polled the desk");
      },
    },
  },

  consumers: {
    reply: Keep.consumer({
      subscribe: ["mail.received"],
      publishes: ["mail.answered"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const { from, subject, text } = trigger.payload;
        return {
          reservations: [{ topic: "mail.received", ids: [trigger.messageId] }],
          data: { to: from, subject: "Re: " + subject, text },
          ui: { title: `Reply to ${from}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.desk.reply(prepared.data);
      },
      async next(ctx, prepared, mutationResult) {
        if (mutationResult.status !== "applied") return;
        await ctx.publish("mail.answered", { messageId: prepared.reservations[0].ids[0], to: prepared.data.to });
      },
    }),

    archive: Keep.consumer({
      subscribe: ["mail.answered"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "mail.answered", ids: [trigger.messageId] }],
          data: { id: trigger.messageId },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.desk.archive(prepared.data);
      },
    }),
  },
});
