// Orders fan out into lines, and lines come together in digests: one file for up
// to 100 lines, at the latest two seconds after the first one came in.
const most = 100;
const patience = 2_000; // milliseconds

export default Keep.workflow({
  name: "digest",
  topics: { order: {}, line: {} },

  producers: {
    async newOrders(ctx) {
      for (const file of await ctx.shop.list({ glob: "*.csv" })) {
        await ctx.publish("order", { messageId: file.name });
      }
    },
  },

  consumers: {
    // One event in, one event out for each line. There is nothing to change
    // outside, so there is no mutate.
    split: Keep.consumer({
      subscribe: ["order"],
      publishes: ["line"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const file = await ctx.shop.read({ name: trigger.messageId });
        const [, ...rows] = file.text.trim().split("\n");
        return {
          reservations: [{ topic: "order", ids: [trigger.messageId] }],
          data: { order: trigger.messageId, lines: rows.map((row) => row.split(",")) },
        };
      },
      async next(ctx, prepared) {
        const { order, lines } = prepared.data;
        for (const [i, [article, quantity]] of lines.entries()) {
          await ctx.publish("line", { messageId: `${order}:${i + 1}`, order, article, quantity: Number(quantity) });
        }
      },
    }),

    // Waits until there is enough, or until it has waited long enough. Without
    // reservations nothing happens until wakeAt or a new line.
    write: Keep.consumer({
      subscribe: ["line"],
      async prepare(ctx) {
        const lines = await ctx.peek("line", { limit: most });
        if (lines.length === 0) return { reservations: [], data: {} };
        const due = Date.parse(lines[0].createdAt) + patience;
        if (lines.length < most && ctx.now() < due) {
          return { reservations: [], data: {}, wakeAt: due };
        }
        const totals = {};
        for (const { payload } of lines) {
          totals[payload.article] = (totals[payload.article] ?? 0) + payload.quantity;
        }
        const articles = Object.keys(totals).sort();
        return {
          reservations: [{ topic: "line", ids: lines.map((l) => l.messageId) }],
          data: {
            // Named after its first line, whole, so that no two digests share a name.
            name: `digest-${encodeURIComponent(lines[0].messageId)}.txt`,
            text: articles.map((a) => `${totals[a]} × ${a}\n`).join(""),
          },
          ui: { title: `Digest of ${lines.length} lines` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.out.write(prepared.data);
      },
    }),
  },
});
