package files_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/files"
)

func open(t testing.TB, cfg files.Config) *connector.Connection {
	t.Helper()
	conn, err := files.New("docs", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func tool(t testing.TB, conn *connector.Connection, name string) connector.Tool {
	t.Helper()
	for _, tool := range conn.Tools {
		if tool.Spec().Name == name {
			return tool
		}
	}
	t.Fatalf("no tool %q", name)
	return nil
}

func read(t testing.TB, conn *connector.Connection, name, params string) (string, error) {
	t.Helper()
	raw, err := tool(t, conn, name).(connector.Reader).Read(t.Context(), json.RawMessage(params))
	return string(raw), err
}

// class returns the class of err as the host reads it.
func class(err error) keep.Class {
	var f *keep.Failure
	if errors.As(err, &f) {
		return f.Class
	}
	if err != nil {
		return keep.ClassUnknown
	}
	return "none"
}

// plant makes files of name and content.
func plant(t testing.TB, root string, content map[string]string) {
	t.Helper()
	for name, text := range content {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A file whose name no text can hold is not passed over in silence, unless it was not asked for.
func TestListOfANameThatIsNotUTF8(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "M\xfcller.pdf"), nil, 0o644); err != nil {
		t.Skip("this file system has no such names: ", err)
	}
	plant(t, root, map[string]string{"a.txt": ""})
	conn := open(t, files.Config{Root: root})
	got, err := read(t, conn, "list", `{}`)
	if f, ok := errors.AsType[*keep.Failure](err); !ok || f.Class != keep.ClassLogic || !strings.Contains(err.Error(), `M\xfcller.pdf`) {
		t.Errorf("list: %s, %v; want a logic failure with the name", got, err)
	}
	if got, err := read(t, conn, "list", `{"glob":"*.txt"}`); err != nil || !strings.Contains(got, "a.txt") {
		t.Errorf("list of others: %s, %v", got, err)
	}
}

func TestList(t *testing.T) {
	root := t.TempDir()
	plant(t, root, map[string]string{
		"b.txt": "bb", "a.eml": "a", "sub/c.eml": "ccc", "sub/deep/d.eml": "", ".hidden": "x", ".keep/x": "x", "sub/.tmp": "x",
	})
	os.Symlink("a.eml", filepath.Join(root, "link.eml"))
	os.Symlink("/etc/passwd", filepath.Join(root, "out.eml"))
	os.Symlink("sub", filepath.Join(root, "loop"))
	conn := open(t, files.Config{Root: root})
	for params, want := range map[string]string{
		`{}`:                          "a.eml b.txt link.eml sub/c.eml sub/deep/d.eml",
		``:                            "a.eml b.txt link.eml sub/c.eml sub/deep/d.eml",
		`{"glob":"*.eml"}`:            "a.eml link.eml",
		`{"glob":"*/*.eml"}`:          "sub/c.eml",
		`{"prefix":"sub/"}`:           "sub/c.eml sub/deep/d.eml",
		`{"prefix":"sub/de"}`:         "sub/deep/d.eml",
		`{"prefix":"a"}`:              "a.eml",
		`{"limit":2}`:                 "a.eml b.txt",
		`{"limit":2,"after":"b.txt"}`: "link.eml sub/c.eml",
		`{"prefix":"nothing"}`:        "",
	} {
		raw, err := read(t, conn, "list", params)
		if err != nil {
			t.Errorf("list %s: %v", params, err)
			continue
		}
		var entries []struct {
			Name     string
			Size     int
			Modified string
		}
		if err := json.Unmarshal([]byte(raw), &entries); err != nil || raw == "null" {
			t.Fatal(err, raw)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name)
			if !strings.HasSuffix(e.Modified, "Z") {
				t.Errorf("modified %q is not UTC", e.Modified)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("list %s = %q, want %q", params, got, want)
		}
	}
	for _, params := range []string{`{"glob":"["}`, `{"limit":9999}`, `{"x":1}`, `[]`} {
		if _, err := read(t, conn, "list", params); class(err) != keep.ClassLogic {
			t.Errorf("list %s: %v, want logic", params, err)
		}
	}
	if _, err := read(t, open(t, files.Config{Root: root + "/gone"}), "list", `{}`); class(err) != keep.ClassPrecondition {
		t.Errorf("missing root: %v, want precondition", err)
	}
}

// TestNameThatIsNotUTF8: no text could name it, so a list that would have it fails and says which; a list of others does not.
func TestNameThatIsNotUTF8(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("its file systems have no such names")
	}
	root := t.TempDir()
	plant(t, root, map[string]string{"a.txt": "x", "b\xff.csv": "x"})
	conn := open(t, files.Config{Root: root})
	if _, err := read(t, conn, "list", `{}`); class(err) != keep.ClassLogic || !strings.Contains(err.Error(), `b\xff.csv`) {
		t.Errorf("list: %v, want that it names the file", err)
	}
	if got, err := read(t, conn, "list", `{"glob":"*.txt"}`); err != nil || !strings.Contains(got, "a.txt") {
		t.Errorf("list of others: %s, %v", got, err)
	}
}

func TestRead(t *testing.T) {
	root := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	plant(t, root, map[string]string{"a.txt": "hällo", "bin": "\xff\x00", "big": strings.Repeat("x", 600<<10), ".env": "x"})
	os.WriteFile(outside, []byte("secret"), 0o600)
	os.Symlink(outside, filepath.Join(root, "out"))
	os.Symlink("..", filepath.Join(root, "up"))
	conn := open(t, files.Config{Root: root})
	for params, want := range map[string]string{
		`{"name":"a.txt"}`:                     `"text":"hällo","warnings":[]`,
		`{"name":"bin","encoding":"base64"}`:   `"base64":"/wA="`,
		`{"name":"bin"}`:                       `"text":"` + "\uFFFD" + `\u0000","warnings":["what`,
		`{"name":"big","offset":614390}`:       `"text":"xxxxxxxxxx"`,
		`{"name":"big","offset":5,"length":2}`: `"text":"xx"`,
		`{"name":"a.txt","offset":99}`:         `"text":""`,
		`{"name":"none.txt"}`:                  `null`,
		`{"name":"none/x.txt"}`:                `null`,
	} {
		if raw, err := read(t, conn, "read", params); err != nil || !strings.Contains(raw, want) {
			t.Errorf("read %s = %.200s, %v; want %s", params, raw, err, want)
		}
	}
	for _, name := range []string{"out", "up/x", "../x", "/etc/passwd", "", ".", ".env", "a/../a.txt", "a\\b", "a.txt/x", "big"} {
		raw, _ := json.Marshal(map[string]string{"name": name})
		if got, err := read(t, conn, "read", string(raw)); class(err) != keep.ClassLogic {
			t.Errorf("read %q = %.100s, %v; want logic", name, got, err)
		}
	}
	os.Mkdir(filepath.Join(root, "d"), 0o755)
	if _, err := read(t, conn, "read", `{"name":"d"}`); class(err) != keep.ClassLogic {
		t.Errorf("directory: %v, want logic", err)
	}
}

// A list without a limit never ends silently: the files that it leaves out would
// be lost for good.
func TestListNeverEndsSilently(t *testing.T) {
	root := t.TempDir()
	for i := range 5001 {
		if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("%05d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := files.New("inbox", files.Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	list := tool(t, conn, "list").(connector.Reader)
	_, err = list.Read(t.Context(), json.RawMessage(`{}`))
	if f, ok := errors.AsType[*keep.Failure](err); !ok || f.Code != "answer-too-large" {
		t.Errorf("list of 5001 files: %v, want answer-too-large", err)
	}
	if _, err := list.Read(t.Context(), json.RawMessage(`{"limit":5000}`)); err != nil {
		t.Errorf("a page of 5000: %v", err)
	}
}

// A file that is replaced while it is read is read as it was or as it is, and not the beginning of one with the size of the other.
func TestReadWhileItIsReplaced(t *testing.T) {
	const short, long = "From: a@example.com\n\n1\n", "From: b@example.com\n\n1\n2\n3\n"
	for _, c := range []struct{ before, after string }{{short, long}, {long, short}} {
		root := t.TempDir()
		plant(t, root, map[string]string{"a.eml": c.before, "b": c.after})
		conn := open(t, files.Config{Root: root})
		files.OnStep(conn, func(point string) {
			if point == "opened" {
				if err := os.Rename(filepath.Join(root, "b"), filepath.Join(root, "a.eml")); err != nil {
					t.Error(err)
				}
			}
		})
		raw, err := read(t, conn, "read", `{"name":"a.eml"}`)
		var got struct {
			Size int
			Text string
		}
		if err == nil {
			err = json.Unmarshal([]byte(raw), &got)
		}
		if err != nil || got.Size != len(got.Text) || got.Text != short && got.Text != long {
			t.Errorf("%d bytes that were replaced by %d are read as %s, %v", len(c.before), len(c.after), raw, err)
		}
	}
}
