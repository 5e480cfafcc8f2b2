// Each line after @ts-expect-error must be refused by the types, and no other.
export default Keep.workflow({
  name: "checks",
  topics: { in: {}, out: {} },
  producers: {
    async poll(ctx) {
      const found = await ctx.crm.find({ q: "x", limit: 3 });
      const email: string | null | undefined = found[0].email;
      await ctx.mail.search({ anything: email });
      const input: string = await ctx.registerInput({ source: "crm", type: "contact", id: found[0].id, title: "x" });
      await ctx.publish(["in", "out"], { messageId: "1", inputId: input, subject: 1 });
      await ctx.kv.set("cursor", (await ctx.kv.get("cursor")) ?? 0);
      // @ts-expect-error q is required
      await ctx.crm.find({});
      // @ts-expect-error a misspelt param
      await ctx.crm.find({ q: "x", limt: 3 });
      // @ts-expect-error a producer changes nothing
      await ctx.crm.create({ id: "1" });
      // @ts-expect-error a producer takes no events
      await ctx.peek("in");
    },
    timed: { schedule: { cron: "0 9 * * 1-5", timezone: "Europe/Berlin" }, publishes: ["in"], handler(ctx) { ctx.log(ctx.now()); } },
    // @ts-expect-error an interval is a string
    wrong: { schedule: { interval: 5 }, handler() {} },
  },
  consumers: {
    work: Keep.consumer({
      subscribe: ["in"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], wakeAt: new Date(ctx.now() + 1000) };
        const [first] = await ctx.peek("in", { limit: 1 });
        await ctx.getByIds("in", [first.messageId]);
        // @ts-expect-error prepare does not publish
        await ctx.publish("out", {});
        // @ts-expect-error prepare changes nothing
        await ctx.mail.send({ to: "x" });
        return { reservations: [{ topic: "in", ids: [trigger.messageId] }], data: { id: trigger.payload.id } };
      },
      async mutate(ctx, prepared) {
        await ctx.crm.get({ id: prepared.data.id });
        // @ts-expect-error mutate does not search
        await ctx.crm.find({ q: "x" });
        // @ts-expect-error kind is a closed list
        await ctx.crm.create({ id: "1", kind: "robot" });
        const never = await ctx.crm.create({ id: "1", kind: "person", tags: ["a"], address: { city: "Köln" }, "x-y": true, subkey: "a" });
        // @ts-expect-error the call ends mutate
        never.anything;
      },
      async next(ctx, prepared, mutationResult) {
        if (mutationResult.status === "applied") await ctx.publish("out", { id: mutationResult.result.id });
        // @ts-expect-error there is a result only if it was applied
        mutationResult.result;
        // @ts-expect-error next reads nothing
        await ctx.crm.get({ id: "1" });
      },
    }),
    // @ts-expect-error a consumer subscribes and prepares
    broken: Keep.consumer({ prepare() { return { reservations: [] }; } }),
  },
  jobs: {
    async nightly(ctx) {
      // @ts-expect-error outside of an item nothing is changed
      await ctx.mail.send({ to: "x" });
      const n: number | undefined = await ctx.withItem("1", "One", async (ctx) => {
        if (ctx.item.isDone) return 0;
        const made = await ctx.crm.create({ id: "1" });
        await ctx.mail.send({ to: "x", subkey: "second" });
        // @ts-expect-error items are not nested
        await ctx.withItem("2", "Two", async () => 1);
        return made["count"] + ctx.item.attempt;
      });
      ctx.log(n);
    },
  },
});

// @ts-expect-error no such key
Keep.workflow({ name: "keys", on: {} });
