package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/keep-run/keep/cmd/keep/internal/exit"
)

// A shelf is an MCP server of the official SDK, which makes notes.
type shelf struct {
	url string

	mu     sync.Mutex // protects the next
	notes  []note
	asked  int
	onMake func(n int) // after the nth note was made
}

// A note is one as the server shows it.
type note struct {
	Title string `json:"title"`
	Body  string `json:"body"`
	key   string
	at    time.Time
}

// makes says how the tools of a shelf behave.
type makes struct {
	keyed   bool          // it honours a key
	ignores bool          // it takes a key, and makes a note more of each call
	errs    bool          // it makes a note, and answers with an error
	echoes  bool          // its search shows what it was asked for
	silent  bool          // its lists show nothing
	cuts    bool          // it makes a note, and the connection breaks before its answer
	lag     time.Duration // until they show a note
}

func newShelf(t *testing.T, how makes) *shelf {
	s := &shelf{}
	server := mcp.NewServer(&mcp.Implementation{Name: "shelf", Version: "1"}, nil)
	type made struct {
		Title string `json:"title"`
		Body  string `json:"body,omitempty"`
	}
	type keyedMade struct {
		made
		Key string `json:"idempotency_key,omitempty"`
	}
	create := func(in made, key string) (*mcp.CallToolResult, any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if in.Title == "" {
			return nil, nil, fmt.Errorf("a note needs a title")
		}
		for i, n := range s.notes {
			if how.keyed && key != "" && n.key == key {
				return nil, map[string]int{"number": i + 1}, nil
			}
		}
		s.notes = append(s.notes, note{in.Title, in.Body, key, time.Now()})
		if s.onMake != nil {
			s.onMake(len(s.notes))
		}
		if how.errs {
			return nil, nil, fmt.Errorf("the note was made, and could not be indexed")
		}
		return nil, map[string]int{"number": len(s.notes)}, nil
	}
	if how.keyed || how.ignores {
		mcp.AddTool(server, &mcp.Tool{Name: "create_note"}, func(_ context.Context, _ *mcp.CallToolRequest, in keyedMade) (*mcp.CallToolResult, any, error) {
			return create(in.made, in.Key)
		})
	} else {
		mcp.AddTool(server, &mcp.Tool{Name: "create_note"}, func(_ context.Context, _ *mcp.CallToolRequest, in made) (*mcp.CallToolResult, any, error) {
			return create(in, "")
		})
	}
	find := func(query string) (*mcp.CallToolResult, any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked++
		found := []note{}
		for _, n := range s.notes {
			if !how.silent && time.Since(n.at) >= how.lag && strings.Contains(n.Body, query) {
				found = append(found, n)
			}
		}
		answer := map[string]any{"page": map[string]any{"notes": found}}
		if how.echoes {
			answer["query"] = query
		}
		return nil, answer, nil
	}
	if how.echoes {
		mcp.AddTool(server, &mcp.Tool{Name: "search_notes"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			Query string `json:"query"`
		}) (*mcp.CallToolResult, any, error) {
			return find(in.Query)
		})
	} else {
		mcp.AddTool(server, &mcp.Tool{Name: "list_notes"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return find("")
		})
	}
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before, answer := s.made(""), httptest.NewRecorder()
		inner.ServeHTTP(answer, r)
		if how.cuts && s.made("") > before {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the client may be gone
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	s.url = web.URL
	return s
}

// made returns how many notes there are with a text.
func (s *shelf) made(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, note := range s.notes {
		if strings.Contains(note.Title+note.Body, text) {
			n++
		}
	}
	return n
}

// settleAfter finds the time that a proof wrote: a second at least, and more where the machine is slow.
var settleAfter = regexp.MustCompile(`settle_after = "(.+)"`)

const pairParams = `{"title":"{n}"}`

// TestGatewayPair proves what is guessed of servers of the official SDK that do what they say, and of some that
// do not. What is written is what was shown, and the gateway takes it.
func TestGatewayPair(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how    makes
		args   []string
		status int
		want   string // in the file; empty: none is written
		says   string // in what is printed
	}{
		"a mark that a list shows":                  {makes{}, nil, exit.Done, "token = { param = \"body\", append = \"\\n\\nkeep:{token}\" }\nsettle_after = \"…\"\n[tools.create_note.reconcile]\ntool = \"list_notes\"\nargs = {}\nfound = \"$.page.notes\"\n# complete", "is of level C in pairings/shelf.toml"},
		"a list that lags":                          {makes{lag: 400 * time.Millisecond}, []string{"--calls", "7"}, exit.Done, "settle_after = \"", "is of level C"},
		"a key that is honoured":                    {makes{keyed: true}, nil, exit.Done, "token = { param = \"idempotency_key\" }\ndeduplicates = true\n", "is of level A"},
		"a list that shows nothing":                 {makes{silent: true}, []string{"--wait", "300ms"}, exit.Failed, "", "none of list_notes showed the mark in 300ms"},
		"a search that shows what it was asked for": {makes{echoes: true}, nil, exit.Failed, "", "search_notes shows a mark that was never made"},
		"params that are refused":                   {makes{}, []string{"--params", `{"title":""}`}, exit.Failed, "", "a note needs a title"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := newShelf(t, c.how), t.TempDir()
			put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.shelf]\nurl = %q\n", s.url))
			out, status := pairAt(t, dir, append([]string{"shelf.create_note", "--params", pairParams, "--yes"}, c.args...)...)
			file, err := os.ReadFile(filepath.Join(dir, "pairings", "shelf.toml"))
			if status != c.status || !strings.Contains(out, c.says) || (err == nil) != (c.want != "") || !strings.Contains(settleAfter.ReplaceAllString(string(file), `settle_after = "…"`), c.want) {
				t.Fatalf("status %d, %v, the file is:\n%s\n%s", status, err, file, out)
			}
			if n := s.made(""); n > 8 {
				t.Errorf("%d notes were made, more than was said", n)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "proofs", "*.txt")); len(left) > 0 {
				t.Errorf("a proof that ended left %v", left)
			}
			if c.want == "" {
				return
			}
			if settle := settleAfter.FindSubmatch(file); settle != nil {
				if d, err := time.ParseDuration(string(settle[1])); err != nil || d < max(3*c.how.lag, time.Second) {
					t.Errorf("settle_after is %s, %v; a list lags by %s", settle[1], err, c.how.lag)
				}
			}
			put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.shelf]\nurl = %q\npairing = \"shelf\"\n", s.url))
			level := map[bool]string{true: `"level": "A"`, false: `"level": "C"`}[c.how.keyed]
			if out, _ := keepAt(t, dir, "gateway", "tools", "--json"); !strings.Contains(out, level) {
				t.Errorf("the gateway has %s", out)
			}
			before := s.made("")
			if out, status := pairAt(t, dir, "shelf.create_note", "--params", pairParams, "--yes"); status != exit.Misused || s.made("") != before || !strings.Contains(out, "already") {
				t.Errorf("a tool that is known: status %d, %d notes: %s", status, s.made("")-before, out)
			}
		})
	}
}

// What speaks against the key of a tool is told also if its mark is shown then.
func TestGatewayPairKeyThatIsIgnored(t *testing.T) {
	t.Parallel()
	s, dir := newShelf(t, makes{ignores: true}), t.TempDir()
	put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.shelf]\nurl = %q\n", s.url))
	out, status := pairAt(t, dir, "shelf.create_note", "--params", pairParams, "--yes", "--calls", "24")
	if status != exit.Done || !strings.Contains(out, "is of level C") || !strings.Contains(out, "idempotency_key was tried as a key, and level A was not shown: the key is not honoured: a repeat was answered with another result") {
		t.Errorf("status %d:\n%s", status, out)
	}
}

// pairAt runs keep gateway pair, and returns all that it prints.
func pairAt(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), buildKeep(t), append([]string{"gateway", "pair"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
	out, _ := cmd.CombinedOutput() // the status says it
	return string(out), cmd.ProcessState.ExitCode()
}

// A draft calls nothing, and without the owner's word neither does a proof.
func TestGatewayPairAsks(t *testing.T) {
	t.Parallel()
	s, dir := newShelf(t, makes{}), t.TempDir()
	put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.shelf]\nurl = %q\n", s.url))
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"shelf"}, exit.Done, "# token = { param = \"body\""},
		{[]string{"shelf.create_note", "--json"}, exit.Done, `"mark": "body"`},
		{[]string{"shelf.create_note", "--params", pairParams}, exit.Misused, "nothing was sent: say --yes"},
		{[]string{"shelf.create_note", "--params", pairParams}, exit.Misused, "list_notes, which read by their names"},
		{[]string{"shelf.create_note", "--params", pairParams, "--lookup", "list_notes"}, exit.Misused, "list_notes, which you named"},
		{[]string{"shelf.create_note", "--params", pairParams, "--yes", "--mark", "nothing"}, exit.Misused, "has no param nothing"},
		{[]string{"shelf.create_note", "--params", pairParams, "--yes", "--lookup", "nothing"}, exit.Misused, "no other tool nothing"},
		{[]string{"shelf.nothing"}, exit.NotFound, "shelf.nothing"},
		{[]string{"nothing"}, exit.NotFound, "nothing"},
	} {
		if out, status := pairAt(t, dir, c.args...); status != c.status || !strings.Contains(out, c.says) {
			t.Errorf("%v: status %d, want %d: %s", c.args, status, c.status, out)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || s.made("") != 0 || s.asked != 0 {
		t.Errorf("%d notes, %d reads, %v, %v; want none, and keep.toml alone", s.made(""), s.asked, entries, err)
	}
}

// The process dies when its first calls were performed: what they made is named in a note on disk, and
// nothing is claimed. The next proof shows that note before it asks.
func TestGatewayPairKilled(t *testing.T) {
	t.Parallel()
	for _, at := range []int{1, 3} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			s, dir := newShelf(t, makes{}), t.TempDir()
			put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.shelf]\nurl = %q\n", s.url))
			cmd := exec.CommandContext(t.Context(), buildKeep(t), "gateway", "pair", "shelf.create_note", "--params", pairParams, "--yes")
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t))
			s.mu.Lock()
			s.onMake = func(n int) {
				if n == at {
					_ = cmd.Process.Kill()
				}
			}
			err := cmd.Start()
			s.mu.Unlock()
			noError(t, err)
			if err := cmd.Wait(); err == nil {
				t.Fatal("it was to die")
			}
			note, err := os.ReadFile(filepath.Join(dir, "proofs", "pair-shelf.create_note.txt"))
			noError(t, err)
			run := regexp.MustCompile(`has (\w+-) in place of \{n\}, and the mark (prove-\w+-)`).FindSubmatch(note)
			if run == nil || s.made(string(run[1])) != at || s.made(string(run[2])) != at {
				t.Fatalf("%d notes were made, and the note says: %s", s.made(""), note)
			}
			if _, err := os.Stat(filepath.Join(dir, "pairings")); err == nil {
				t.Error("a proof that died claims something")
			}
			out, status := pairAt(t, dir, "shelf.create_note", "--params", pairParams, "--yes")
			if status != exit.Done || !strings.Contains(out, "broken off") || strings.Contains(out, "\\n") || !strings.Contains(out, string(run[1])) || !strings.Contains(out, "is of level C") {
				t.Errorf("the next one: status %d: %s", status, out)
			}
			if after, err := os.ReadFile(filepath.Join(dir, "proofs", "pair-shelf.create_note.txt")); err != nil || string(after) != string(note) {
				t.Errorf("the note of what was made became %q, %v", after, err)
			}
		})
	}
}

// A call that got no answer may have made something: the report names it, to be removed. If that cannot be written, the note of
// the proof stays.
func TestGatewayPairNamesWhatMayBeMade(t *testing.T) {
	t.Parallel()
	s, dir := newShelf(t, makes{cuts: true}), t.TempDir()
	put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.shelf]\nurl = %q\n", s.url))
	prove := []string{"gateway", "pair", "shelf.create_note", "--params", pairParams, "--yes", "--json"}
	out, status := keepAt(t, dir, prove...)
	var r struct {
		Tools []struct{ Made []struct{ Token string } }
	}
	noError(t, json.Unmarshal([]byte(out), &r))
	if status != exit.Failed || s.made("") != 1 || len(r.Tools) != 1 || len(r.Tools[0].Made) != 1 || s.made(r.Tools[0].Made[0].Token) != 1 {
		t.Errorf("status %d, %d notes were made, and the report is %s", status, s.made(""), out)
	}
	proofs := filepath.Join(dir, "proofs")
	page, note := filepath.Join(proofs, "shelf.create_note.html"), filepath.Join(proofs, "pair-shelf.create_note.txt")
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "to be removed") {
		t.Errorf("the page: %v\n%s", err, text)
	}
	if _, err := os.Stat(note); err == nil {
		t.Error("the note stays beside a report")
	}
	noError(t, os.Remove(page))
	noError(t, os.Mkdir(page, 0o700)) // where no report can be written
	if out, status = keepAt(t, dir, prove...); status != exit.Failed {
		t.Errorf("status %d: %s", status, out)
	}
	if text, err := os.ReadFile(note); err != nil || s.made("") != 2 {
		t.Errorf("%d notes were made, and what names the last is gone: %q, %v", s.made(""), text, err)
	}
}

// A tool that says that it failed may have made something all the same, with and without a key: each such call is named, to be removed.
func TestGatewayPairNamesWhatAnErrorMayHaveMade(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]makes{"a mark": {errs: true}, "a key": {errs: true, ignores: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := newShelf(t, how), t.TempDir()
			put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.shelf]\nurl = %q\n", s.url))
			out, status := keepAt(t, dir, "gateway", "pair", "shelf.create_note", "--params", pairParams, "--yes", "--json")
			var r struct {
				Tools []struct {
					Made []struct{ Token, Error string }
				}
			}
			noError(t, json.Unmarshal([]byte(out), &r))
			if status != exit.Failed || len(r.Tools) != 1 || len(r.Tools[0].Made) != s.made("") || s.made("") == 0 {
				t.Fatalf("status %d, %d notes were made, and the report is %s", status, s.made(""), out)
			}
			page, err := os.ReadFile(filepath.Join(dir, "proofs", "shelf.create_note.html"))
			noError(t, err)
			for _, made := range r.Tools[0].Made {
				if !strings.Contains(made.Error, "could not be indexed") || !strings.Contains(string(page), made.Token) {
					t.Errorf("%+v is named on the page: %s", made, page)
				}
			}
		})
	}
}

// What is written to the file of a pairing while a proof runs stays in it, also if there was none before.
func TestGatewayPairKeepsWhatIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "# mine\n[tools.one]\neffect = \"list\"\n"} {
		t.Run(fmt.Sprint(before != ""), func(t *testing.T) {
			t.Parallel()
			s, dir := newShelf(t, makes{}), t.TempDir()
			put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.shelf]\nurl = %q\n", s.url))
			const other = "[tools.other]\neffect = \"list\" # mine, too\n"
			write := func(text string) {
				head := "name = \"shelf\"\nversion = \"1\"\ntitle = \"Shelf\"\n"
				if err := os.WriteFile(filepath.Join(dir, "pairings", "shelf.toml"), []byte(head+text), 0o600); err != nil {
					t.Error(err)
				}
			}
			noError(t, os.Mkdir(filepath.Join(dir, "pairings"), 0o700))
			if before != "" {
				write(before)
			}
			s.mu.Lock()
			s.onMake = func(n int) {
				if n == 1 {
					write(before + other)
				}
			}
			s.mu.Unlock()
			out, status := pairAt(t, dir, "shelf.create_note", "--params", pairParams, "--yes")
			text, err := os.ReadFile(filepath.Join(dir, "pairings", "shelf.toml"))
			if err != nil || status != exit.Done || !strings.Contains(string(text), before+other) || !strings.Contains(string(text), "[tools.create_note]") {
				t.Errorf("status %d, %s\nthe file, %v:\n%s", status, out, err, text)
			}
		})
	}
}

// The reference server for files is proved by itself.
func TestGatewayPairOfARealServer(t *testing.T) {
	t.Parallel()
	cache, err := os.UserCacheDir()
	noError(t, err)
	file := filepath.Join(cache, "keep-test", "mcp-servers", "node_modules", "@modelcontextprotocol", "server-filesystem", "dist", "index.js")
	if _, err := os.Stat(file); err != nil {
		t.Skip("no MCP servers of npm on this machine; test.sh installs them")
	}
	dir := t.TempDir()
	put(t, dir, "keep.toml", fmt.Sprintf("[gateway.servers.files]\ncommand = \"node\"\nargs = [%q, %q]\n", file, dir))
	out, status := pairAt(t, dir, "files.write_file", "--params", fmt.Sprintf(`{"path":"%s/{n}.txt","content":"x"}`, dir), "--yes")
	if status != exit.Done || !strings.Contains(out, "files.write_file is of level C") {
		t.Errorf("status %d: %s", status, out)
	}
}
