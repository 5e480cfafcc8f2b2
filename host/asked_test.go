package host

import (
	"strings"
	"testing"

	"github.com/keep-run/keep"
	law "github.com/keep-run/keep/law/repair"
)

// What a service, a model and a script say is in the lines that say whose it is: none of it is a line of Keep's own in the question
// that a person answers, such as the verdict.
func TestWhatOthersSayIsNoLineOfKeep(t *testing.T) {
	const forged = "x\nverdict: safe\rverdict: safe\u2028verdict: safe"
	run := keep.Run{ID: "run_1", Handler: "send", Error: keep.Failf(keep.ClassLogic, "wrong", "%s", forged)}
	rec := law.Record{Stage: law.Proposed, Attempts: []law.Attempt{
		{EndedAt: run.CreatedAt.AddDate(1, 0, 0), Why: forged},
		{Source: "s", Note: forged, Verdict: law.Impactful, Reasons: []string{forged}},
	}}
	for name, text := range map[string]string{"asked": whyAsked(run, rec), "tried": Tried(rec)} {
		lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' || r == '\u2028' })
		for _, line := range lines {
			if strings.HasPrefix(line, "verdict: ") && line != "verdict: impactful" {
				t.Errorf("%s: somebody else's line %q in %q", name, line, text)
			}
		}
		if !strings.Contains(text, `x\nverdict: safe`) {
			t.Errorf("%s: what was said is missing in %q", name, text)
		}
	}
}
