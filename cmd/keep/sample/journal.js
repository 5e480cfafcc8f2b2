/// <reference path="./keep.d.ts" />

// Writes one line into the journal for each file in inbox/, once, however often
// this runs and whenever it is killed.
export default Keep.workflow({
  name: "journal",
  topics: { "file.arrived": {} },

  producers: {
    // Reads, and publishes what it finds. The same messageId twice is one event.
    async look(ctx) {
      for (const file of await ctx.inbox.list({})) {
        await ctx.publish("file.arrived", { messageId: file.name, name: file.name, size: file.size });
      }
    },
  },

  consumers: {
    note: Keep.consumer({
      subscribe: ["file.arrived"],

      // Decides what to do, and pins it. Nothing outside is changed here.
      async prepare(ctx, event) {
        if (!event) return { reservations: [], data: {} };
        const { name, size } = event.payload;
        return {
          reservations: [{ topic: "file.arrived", ids: [event.messageId] }],
          data: { name, size },
          ui: { title: `Note ${name}` },
        };
      },

      // Makes one change. Keep records it first, and never makes it twice.
      async mutate(ctx, prepared) {
        const { name, size } = prepared.data;
        await ctx.journal.write({ text: `${name} arrived`, data: { size } });
      },

      async next(ctx, prepared, result) {
        ctx.log(prepared.data.name, result.status);
      },
    }),
  },
});
