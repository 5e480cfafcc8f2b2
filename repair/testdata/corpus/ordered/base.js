const account = (bill) => bill.iban;

export default Keep.workflow({
  name: "bills",
  topics: { mail: {} },
  consumers: {
    pay: Keep.consumer({
      subscribe: ["mail"],
      order: "key",
      key: (event) => account(event.payload),
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        const bill = trigger.payload;
        const amount = Number(bill.total.value);
        return { reservations: [{ topic: "mail", ids: [trigger.messageId] }], data: { ref: bill.ref, to: bill.iban, amount } };
      },
      async mutate(ctx, prepared) {
        const { ref, to, amount } = prepared.data;
        if (amount > 500) return; // a person pays what is more
        await ctx.svc.pay({ ref, to, amount, currency: "EUR" });
      },
    }),
  },
});
