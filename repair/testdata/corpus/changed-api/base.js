export default Keep.workflow({
  name: "welcome",
  topics: { signup: {} },
  consumers: {
    greet: Keep.consumer({
      subscribe: ["signup"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const user = await ctx.svc.get({ id: trigger.payload.user });
        return { reservations: [{ topic: "signup", ids: [trigger.messageId] }], data: { to: user.contact.email, name: user.name.trim() } };
      },
      async mutate(ctx, prepared) {
        await ctx.svc.send({ to: prepared.data.to, subject: "Welcome " + prepared.data.name });
      },
      async next(ctx, prepared, result) {
        if (result.status === "skipped") return;
      },
    }),
  },
});
