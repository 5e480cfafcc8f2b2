package repair_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep/internal/llmtest"
	law "github.com/keep-run/keep/law/repair"
)

// A proposal that takes out what the script does outside is not safe, also where no recorded run came to it: nobody would miss it
// before that.
func TestLostReach(t *testing.T) {
	texts := textsOf(t, changedAPI)
	const yearly = `  jobs: {
    report: {
      schedule: { cron: "0 0 1 1 *" },
      async handler(ctx) {
        await ctx.withItem("year", "Year", async (ctx) => {
          await ctx.svc.send({ to: "boss@example.com", subject: "Year" });
          await ctx.svc.send({ to: "tax@example.com", subject: "Year" });
        });
      },
    },
  },
  producers: {
    async poll(ctx) {
      const last = await ctx.kv.get("last");
      await ctx.kv.set("last", "x");
    },
  },
  consumers: {
    bye: Keep.consumer({
      subscribe: ["leave"],
      async prepare(ctx, trigger) {
        if (!trigger) return { reservations: [], data: {} };
        return { reservations: [{ topic: "leave", ids: [trigger.messageId] }], data: trigger.payload };
      },
      async mutate(ctx, prepared) {
        await ctx.svc.send({ to: prepared.data.to, subject: subject() });
      },
      async next(ctx, prepared) {
        await ctx.publish("gone", { messageId: prepared.data.to });
      },
    }),`
	base := "const subject = () => \"Bye\";\n" + strings.Replace(strings.Replace(texts["base.js"], "  consumers: {", yearly, 1), "signup: {}", "signup: {}, leave: {}, gone: {}", 1)
	mended := strings.Replace(base, "user.contact.email", "(user.contact ?? user).email", 1)
	const second = `          await ctx.svc.send({ to: "tax@example.com", subject: "Year" });` + "\n"
	for name, tt := range map[string]struct {
		proposal string
		safe     bool
	}{
		"all is there":                  {mended, true},
		"another helper":                {strings.Replace(mended, `() => "Bye"`, `() => "Hello"`, 1), false},
		"a helper of its own":           {"const own = (user) => (user.contact ?? user).email;\n" + strings.Replace(base, "user.contact.email", "own(user)", 1), true},
		"one of two calls":              {strings.Replace(mended, second, "", 1), false},
		"both calls":                    {strings.Replace(strings.Replace(mended, second, "", 1), `          await ctx.svc.send({ to: "boss@example.com", subject: "Year" });`+"\n", "", 1), false},
		"the call of a consumer":        {strings.Replace(mended, `        await ctx.svc.send({ to: prepared.data.to, subject: subject() });`+"\n", "", 1), false},
		"an event":                      {strings.Replace(mended, `        await ctx.publish("gone", { messageId: prepared.data.to });`+"\n", "", 1), false},
		"the checkpoint":                {strings.Replace(mended, `      await ctx.kv.set("last", "x");`+"\n", "", 1), false},
		"behind a return":               {strings.Replace(mended, `        await ctx.svc.send({ to: prepared.data.to, subject: subject() });`, "        return;\n"+`        await ctx.svc.send({ to: prepared.data.to, subject: subject() });`, 1), false},
		"behind a return on its line":   {strings.Replace(mended, `        await ctx.publish("gone"`, `        if (prepared) return; await ctx.publish("gone"`, 1), false},
		"behind a throw":                {strings.Replace(mended, `        await ctx.publish("gone"`, "        throw new Error('later');\n"+`        await ctx.publish("gone"`, 1), false},
		"in a branch":                   {strings.Replace(mended, `        await ctx.publish("gone", { messageId: prepared.data.to });`, "        if (!prepared) {\n"+`        await ctx.publish("gone", { messageId: prepared.data.to });`+"\n        }", 1), false},
		"in a loop that is never begun": {strings.Replace(mended, `        await ctx.publish("gone", { messageId: prepared.data.to });`, "        for (const p of []) {\n"+`        await ctx.publish("gone", { messageId: prepared.data.to });`+"\n        }", 1), false},
		"behind an and":                 {strings.Replace(mended, `await ctx.publish("gone"`, `!prepared && await ctx.publish("gone"`, 1), false},
		"the item":                      {strings.Replace(mended, "await ctx.withItem(", "await (async () => {})(", 1), false},
		"a call for another one":        {strings.Replace(mended, second, `          await ctx.svc.get({ id: "tax" });`+"\n", 1), false},
		"behind a function":             {strings.Replace(mended, second, "          const last = async () => "+strings.TrimSpace(second)+"\n", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"base.js": base, "world.json": texts["world.json"]} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			w := newWorld(t, dir)
			got, err := w.bench.Try(t.Context(), w.base, w.failed, tt.proposal)
			if err != nil {
				t.Fatal(err)
			}
			if (got.Verdict == law.Safe) != tt.safe || got.Verdict == law.Refused {
				t.Errorf("%s %q, want safe: %t, of\n%s", got.Verdict, got.Reasons, tt.safe, tt.proposal)
			}
		})
	}
}

// A script that is too long to be shown to a model is not repaired: it would be written anew without what is cut, and paid for.
func TestScriptIsTooLong(t *testing.T) {
	texts := textsOf(t, changedAPI)
	dir := t.TempDir()
	long := texts["base.js"] + strings.Repeat("// what the year's report is made of\n", 2000)
	for file, text := range map[string]string{"base.js": long, "world.json": texts["world.json"]} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, dir)
	s := llmtest.Start(t, func(llmtest.Request) llmtest.Reply { return call("propose", texts["base.js"]) })
	out := w.repair(t, w.repairer(t, s, false))
	if n := len(s.Requests()); n != 0 || out.Proposal != nil || out.Spent.Tokens != 0 {
		t.Errorf("%d requests, %d tokens, proposal %v; want none", n, out.Spent.Tokens, out.Proposal)
	}
	if why := out.Attempts[0].Why; !strings.Contains(why, "a model is shown at most") {
		t.Errorf("it says %q", why)
	}
}
