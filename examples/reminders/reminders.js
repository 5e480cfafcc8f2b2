// Every unpaid invoice is reminded of once. A letter is some lines at the end of
// its customer's file.
export default Keep.workflow({
  name: "reminders",
  jobs: {
    remind: {
      schedule: { interval: "1d" },
      async handler(ctx) {
        for (const row of await ctx.db.list({ table: "invoices", where: { paid: 0 } })) {
          await ctx.withItem(`invoice:${row.id}`, `Remind ${row.customer} of ${row.number}`, async (ctx) => {
            // The handler always runs. A call in an item that is done is refused,
            // and fails the job, so that a missing line here is noticed.
            if (ctx.item.isDone) return;
            await remind(ctx, row);
          });
        }
      },
    },
  },
});

// remind makes the calls of one invoice. What it sends depends on the invoice and
// on nothing else: not on the time, and not on what was sent before. So a run
// that takes over after a crash says the same, and Keep knows it for the same.
async function remind(ctx, row) {
  // What is changed is the file. Two letters into one file would be one change,
  // and the second call would get the first one's result; subkey separates them.
  const name = `${row.customer}.txt`;
  await ctx.outbox.append({
    name,
    text: `Reminder: invoice ${row.number} of ${row.amount} was due on ${row.due}.\n`,
    subkey: "reminder",
  });
  if (row.stage > 1) {
    await ctx.outbox.append({
      name,
      text: `Notice: invoice ${row.number} will be collected.\n`,
      subkey: "notice",
    });
  }
  await ctx.db.update({ table: "invoices", key: { id: row.id }, set: { reminded: 1 } });
}
