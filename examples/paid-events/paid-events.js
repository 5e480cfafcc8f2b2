// Each payment that succeeded is told to the team, and then noted in a database of Notion.
const CHANNEL = "C0PAYMENTS";
const DATABASE = "d9824bdc84454327be8b5b47500af6ce";

export default Keep.workflow({
  name: "paid-events",
  topics: { events: {}, told: {} },

  consumers: {
    tell: Keep.consumer({
      subscribe: ["events"],
      publishes: ["told"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        const { type, data } = event.payload;
        const paid = type === "payment_intent.succeeded" ? data.object : null;
        return {
          reservations: [{ topic: "events", ids: [event.messageId] }],
          data: { paid: paid && { id: paid.id, amount: (paid.amount / 100).toFixed(2), currency: paid.currency.toUpperCase() } },
          ui: { title: paid ? `Payment ${paid.id}` : `${type}: nothing to do` },
        };
      },
      async mutate(ctx, { data: { paid } }) {
        if (!paid) return; // another kind of event
        await ctx.team.postMessage({ channel: CHANNEL, text: `Paid: ${paid.amount} ${paid.currency} (${paid.id})` });
      },
      async next(ctx, { data: { paid } }, result) {
        if (result.status === "applied") await ctx.publish("told", { messageId: paid.id, payload: paid });
      },
    }),

    note: Keep.consumer({
      subscribe: ["told"],
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        return { reservations: [{ topic: "told", ids: [event.messageId] }], data: event.payload, ui: { title: `Row for ${event.payload.id}` } };
      },
      async mutate(ctx, { data }) {
        await ctx.notes.createPage({
          parent: { database_id: DATABASE },
          properties: { Name: { title: [{ text: { content: `${data.amount} ${data.currency} (${data.id})` } }] } },
        });
      },
    }),
  },
});
