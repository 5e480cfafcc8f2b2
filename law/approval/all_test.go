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
		`<p>Hello</p><textarea rows=2>Pay DE02</textarea>`,
		`<p>Hello</p><img width="1" alt="Pay DE02">`,
		`<p>Hello</p><img src="https://example.com/a.png" ALT='Pay DE02'>`,
		`<p>Hello</p><input type=button value = "Pay DE02"><input placeholder="IBAN">`,
		`<p>Hello</p><img alt="Pay DE02 > 5">`,
		`<p>Hello</p><img src=x alt="<b Pay DE02"><p>Bye</p>`,
		`<p>Hello</p><img src="<b Pay DE02"><p>Bye</p>`,
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

// What a browser shows as it is written, as in a text area, is not taken for tags.
func TestTagsThatAreTextAreShown(t *testing.T) {
	view := keep.View{Kind: keep.ViewMail, Parts: []keep.ViewPart{{Role: "html", Param: "html"}}}
	for _, name := range []string{"textarea", "xmp", "TextArea"} {
		payload, err := json.Marshal(map[string]string{"html": "<p>Hello</p><" + name + ">send <i to=DE02> &lt;b&gt; here</" + name + "><p>Bye"})
		if err != nil {
			t.Fatal(err)
		}
		text := approval.Text(keep.Approval{Payload: payload, View: view})
		if !strings.Contains(text, "Hello") || !strings.Contains(text, "send <i to=DE02> ") || !strings.Contains(text, " here") || !strings.HasSuffix(strings.TrimSpace(text), "Bye") {
			t.Errorf("in %s is shown\n%s", name, text)
		}
	}
}

// A reader is told that there are more marks than are listed, and more addresses than are compared.
func TestMoreMarksThanAreListed(t *testing.T) {
	many, text := map[string]any{}, strings.Builder{}
	for i := range 60 {
		many[fmt.Sprintf("p%02d", i)] = "a\u200b"
		fmt.Fprintf(&text, "a%d@example.com ", i)
	}
	marks := func(payload any) []approval.Mark {
		t.Helper()
		raw, err := json.Marshal(payload)
		if err != nil {
			t.Fatal(err)
		}
		return approval.Marks(keep.Approval{Payload: raw})
	}
	if all := marks(many); len(all) != 50 || !strings.HasSuffix(all[49].Detail, "; 10 more marks are not listed") {
		t.Errorf("%d marks, the last: %+v", len(all), all[len(all)-1])
	}
	if all := marks(map[string]string{"text": text.String() + "bob@xn--pypal-4ve.com"}); len(all) != 1 || !strings.Contains(all[0].Detail, "more than 50 addresses") {
		t.Errorf("marks of a text with 61 addresses: %+v", all)
	}
}
