package repair_test

import (
	"strings"
	"testing"

	"github.com/keep-run/keep/law/repair"
)

// A condition that is taken out, changed or moved is one that no recorded run may have come to.
func TestUngoverned(t *testing.T) {
	const was = `const amount = Number(bill.total);
if (amount > 500) return; // a person pays what is more
for (const l of lines) {
  if (l.done) continue;
  await ctx.svc.pay({ ref: l.ref, amount });
}
`
	const guard = "if (amount > 500) return;"
	for _, tt := range []struct {
		name, old, new string
		want           []string
		reaches        int
	}{
		{"the same", "", "", nil, 1},
		{"another line", "Number(bill.total)", "Number(bill.total ?? bill.amount)", nil, 1},
		{"other spaces and remarks", "if (amount > 500) return; // a person pays what is more", "/* limit */\n  if (amount>500) return ;", nil, 1},
		{"a condition more", "if (l.done) continue;", "if (l.skip) continue;\n  if (l.done) continue;", nil, 1},
		{"taken out", guard, "", []string{guard}, 1},
		{"changed", "> 500", "> 5000", []string{guard}, 1},
		{"in a remark", guard, "/*\n" + guard + "\n*/", []string{guard}, 1},
		{"in a remark of a line", guard, "// " + guard, []string{guard}, 1},
		{"the loop, too", "if (l.done) continue;", "", []string{"if (l.done) continue;"}, 1},
		{"behind the call", "  if (l.done) continue;\n  await ctx.svc.pay({ ref: l.ref, amount });", "  await ctx.svc.pay({ ref: l.ref, amount });\n  if (l.done) continue;",
			[]string{"await ctx.svc.pay({ ref: l.ref, amount });"}, 1},
		{"a call more", guard, "await ctx.svc.pay({ ref: bill.ref, amount });\n" + guard, nil, 2},
		{"by its arguments", guard, "await arguments[0].svc.pay({ amount });\n" + guard, nil, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(was, tt.old) {
				t.Fatal("the script has no such text")
			}
			is := strings.Replace(was, tt.old, tt.new, 1)
			got := repair.Ungoverned(was, is)
			if strings.Join(got, "|") != strings.Join(tt.want, "|") {
				t.Errorf("Ungoverned: %q, want %q", got, tt.want)
			}
			if n := repair.Reaches(is); n != tt.reaches {
				t.Errorf("Reaches: %d, want %d", n, tt.reaches)
			}
			e := good()
			e.Was, e.Is = was, is
			want := repair.Safe
			switch {
			case len(tt.want) > 0:
				want = repair.Impactful
			case tt.reaches > 1:
				want = repair.Inconclusive
			}
			if v, why := repair.Judge(e); v != want {
				t.Errorf("Judge: %s %q, want %s", v, why, want)
			}
		})
	}
}
