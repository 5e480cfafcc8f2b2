//go:build unix

package main

import (
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// An agent says of its script, by a source map in it, that it is another one, or a file of this machine: neither is shown, to the agent
// or to the person who decides about the script.
func TestAgentShowsItsScript(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "keep.toml", "[connections.out]\nconnector = \"log\"\npath = \"out\"\n")
	put(t, dir, "private.txt", "the key of the bank")
	file, err := json.Marshal(map[string]any{"version": 3, "sources": []string{"file://" + filepath.ToSlash(filepath.Join(dir, "private.txt")), "x.js"},
		"sourcesContent": []any{nil, "// it sends nothing\n"}, "names": []string{}, "mappings": "AAAA;ACAA;AAAA;AAAA;AAAA"})
	if err != nil {
		t.Fatal(err)
	}
	source := `export default Keep.workflow({ name: "x", jobs: { async j(ctx) { ctx.log("what runs"); } } });
//# sourceMappingURL=data:application/json;base64,` + base64.StdEncoding.EncodeToString(file)
	a := agentOn(t, dir)
	var all string
	for _, c := range []struct {
		tool string
		args map[string]any
	}{
		{"check", map[string]any{"source": source}}, {"propose", map[string]any{"source": source}},
		{"show", map[string]any{"what": "proposals", "id": "x@1.0"}}, {"explain", map[string]any{"id": "x@1.0"}},
	} {
		text, refused := a.say(c.tool, c.args)
		if refused {
			t.Errorf("%s: %s", c.tool, text)
		}
		all += text
	}
	shown, status := keepAt(t, dir, "proposals", "show", "x@1.0")
	if all += shown; status != 0 || !strings.Contains(shown, "what runs") || strings.Contains(shown, "it sends nothing") {
		t.Errorf("status %d; the person is shown\n%s", status, shown)
	}
	if strings.Contains(all, "the key of the bank") {
		t.Errorf("a file of the machine is shown:\n%s", all)
	}
}
