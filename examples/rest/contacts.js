// Each signup becomes a contact, and each contact gets one welcome message.
export default Keep.workflow({
  name: "contacts",
  topics: { "signup": {}, "contact.created": {} },

  producers: {
    async pollSignups(ctx) {
      for (const s of await ctx.crm.signups({})) {
        await ctx.publish("signup", { messageId: s.id, name: s.name, email: s.email });
      }
    },
  },

  consumers: {
    addContact: Keep.consumer({
      subscribe: ["signup"],
      publishes: ["contact.created"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const { name, email } = trigger.payload;
        return {
          reservations: [{ topic: "signup", ids: [trigger.messageId] }],
          data: { name, email },
          ui: { title: `Add ${name} to the contacts` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.crm.create(prepared.data);
      },
      async next(ctx, prepared, mutationResult) {
        if (mutationResult.status !== "applied") return; // a person skipped it
        const { name, email } = prepared.data;
        await ctx.publish("contact.created", { messageId: email, name, email });
      },
    }),

    welcome: Keep.consumer({
      subscribe: ["contact.created"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const { name, email } = trigger.payload;
        return {
          reservations: [{ topic: "contact.created", ids: [trigger.messageId] }],
          data: { to: email, text: `Welcome, ${name}!` },
          ui: { title: `Welcome ${name}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.crm.send(prepared.data);
      },
    }),
  },
});
