package approval_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/approval"
)

// Whatever the names of params are, no text of a call is hidden from the person who approves it, nor from the marks: two that
// would have the same path, as "a.b" and b in a, are two.
func TestNothingSentIsHidden(t *testing.T) {
	name := rapid.SampledFrom([]string{"to", "a", "b", "a.b", "", ".", "[0]", "a[0]", "Sent", `"a"`, `"a.b"`, "a.", ".a"})
	rapid.Check(t, func(t *rapid.T) {
		var texts []string
		text := func() string {
			texts = append(texts, fmt.Sprintf("text%d", len(texts)))
			return texts[len(texts)-1] + "\u200b!"
		}
		var draw func(depth int) any
		draw = func(depth int) any {
			switch n := rapid.IntRange(0, 3).Draw(t, "kind"); {
			case depth == 0 || n == 0:
				return text()
			case n == 1:
				return []any{draw(depth - 1), draw(depth - 1)}
			}
			m := map[string]any{}
			for range rapid.IntRange(1, 3).Draw(t, "members") {
				if at := name.Draw(t, "name"); m[at] == nil {
					m[at] = draw(depth - 1)
				}
			}
			return m
		}
		payload, err := json.Marshal(map[string]any{name.Draw(t, "first"): draw(3), "x" + name.Draw(t, "second"): draw(2), "a": draw(2)})
		if err != nil {
			t.Fatal(err)
		}
		view := keep.View{Kind: keep.ViewMessage, Parts: []keep.ViewPart{{Role: "to", Param: "a.b"}, {Role: "text", Param: "to"}}}
		a := keep.Approval{Payload: payload, View: view}
		var all strings.Builder
		for _, l := range approval.Read(a) {
			all.WriteString(l.Text + "\n")
		}
		marked := len(approval.Marks(a))
		sent := 0
		for _, one := range texts {
			if !strings.Contains(string(payload), one+"\u200b!") {
				continue // another had its name
			}
			if sent++; !strings.Contains(all.String(), one+"⟨U+200B⟩!") {
				t.Fatalf("%s of %s is not shown:\n%s", one, payload, all.String())
			}
		}
		if marked < min(sent, 50) {
			t.Fatalf("%d texts of %s, %d marks", sent, payload, marked)
		}
	})
}

// Text that the receiver of a letter sees is shown to who approves it, whatever stands before it that looks like a style or a script.
func TestNoTextOfALetterIsHidden(t *testing.T) {
	view := keep.View{Kind: keep.ViewMail, Parts: []keep.ViewPart{{Role: "html", Param: "html"}}}
	for _, html := range []string{
		`<p>Hello</p><!-- <style> --><p>Pay DE02</p>`,
		`<p>Hello</p><p title="<style>">Pay DE02</p>`,
		`<p>Hello</p><p title="a>b<script>">Pay DE02 <a href="https://example.com">here</a></p>`,
		`<p>Hello</p><!-- <template> -->Pay DE02<!-- </template> -->`,
		`<style>p:after { content: "Pay DE02" }</style><p>Hello</p>`,
	} {
		payload, err := json.Marshal(map[string]string{"html": html})
		if err != nil {
			t.Fatal(err)
		}
		text := approval.Text(keep.Approval{Payload: payload, View: view})
		hello, pay := strings.Index(text, "Hello"), strings.Index(text, "Pay DE02")
		if hello < 0 || pay < hello || strings.Contains(html, "href") && !strings.Contains(text, "link to: https://example.com") {
			t.Errorf("%s is shown as\n%s", html, text)
		}
	}
}
