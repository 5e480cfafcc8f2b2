package repair_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/repair"
)

// TestRebased: what the function of an order key calls is a part of it, wherever it is declared, and nothing else is.
func TestRebased(t *testing.T) {
	const script = `
import { clean as tidy } from "./clean.ts";
const parts = { iban: (mail) => mail.iban };
async function by(mail) {
	return tidy(parts.iban(mail));
}
const limit =
	20;
function pay(ctx, mail) {
	if (mail.amount > limit) return;
	return ctx.bank.pay(mail.amount);
}
export default Keep.workflow({
	consumers: { pay: { key: (event) => by(event.payload), mutate: pay } },
});
export function clean(text) {
	return text.trim(); // of spaces
}
`
	keys := map[keep.HandlerName]string{"pay": "(event) => by(event.payload)", "send": "(event) => event.payload.limit"}
	rebase(t, script, keys, []rebasing{
		{"nothing", "", "", 0},
		{"a remark", "// of spaces", "", 0},
		{"the work", "mail.amount > limit", "mail.amount >= limit", 0},
		{"another constant", "\t20;", "\t30;", 0},
		{"the handler", "mutate: pay", "mutate: async (ctx) => {}", 0},
		{"what it calls", "tidy(parts", "(parts", 1},
		{"an object with a function", "mail.iban };", "mail.owner };", 1},
		{"what that calls", "text.trim()", "text", 1},
		{"where that is from", "clean as tidy", "dirty as tidy", 1},
		{"a function in its place", "const limit", "const by = (mail) => mail.owner;\nconst limit", 1},
	})
}

// TestRebasedRenamed: a bundle has another name for what two files declare, and for what a file exports without a name.
func TestRebasedRenamed(t *testing.T) {
	const script = `
import byOwner, { by } from "./keys.ts";
const normal = (text) => text.trim();
export default Keep.workflow({
	consumers: { pay: { key: (event) => normal2(event.payload), mutate: async (ctx) => {} } },
});
const normal = (text) => text.trim().toLowerCase();
export function pay(ctx) {}
export default (event) => event.owner;
`
	keys := map[keep.HandlerName]string{"pay": "(event) => normal2(event.payload)", "send": "(event) => keys_default(event)"}
	rebase(t, script, keys, []rebasing{
		{"nothing", "", "", 0},
		{"the work", "async (ctx) => {}", "async (ctx) => { await 0 }", 0},
		{"what another file declares, too", ".toLowerCase()", ".toUpperCase()", 1},
		{"what a file exports", "event.owner", "event.payer", 1},
	})
}

// A rebasing is a change of a script, and how many sentences say that a key is another one.
type rebasing struct {
	name, old, now string
	want           int
}

func rebase(t *testing.T, script string, keys map[keep.HandlerName]string, changes []rebasing) {
	t.Helper()
	for _, tt := range changes {
		if got := repair.Rebased(script, strings.Replace(script, tt.old, tt.now, 1), keys); len(got) != tt.want {
			t.Errorf("%s: %q, want %d sentences", tt.name, got, tt.want)
		}
	}
}
