package files

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/internal/native"
)

// The params of write and append.
const contentSchema = `
	"name":{"type":"string","minLength":1},
	"text":{"type":"string"},
	"base64":{"type":"string","contentEncoding":"base64"}`

var contentParams = json.RawMessage(`{"type":"object","required":["name"],"additionalProperties":false,
	"oneOf":[{"required":["text"]},{"required":["base64"]}],"properties":{` + contentSchema + `}}`)

var writeSpec = connector.Spec{
	Name:        "write",
	Effect:      connector.Mutate,
	Description: "Makes a file, or replaces it as a whole; directories above it are made.",
	Params:      contentParams,
	Result: json.RawMessage(`{"type":"object","required":["name","size","sha256"],"properties":{
		"name":{"type":"string"},"size":{"type":"integer"},"sha256":{"type":"string"}}}`),
	Level:        keep.LevelKey,
	Marked:       true,
	Identity:     []string{"name"},
	VerifyByHand: "Look at the file, and at the marks in .keep in the root.",
}

// A params is what write and append take.
type params struct {
	Name   string  `json:"name"`
	Text   *string `json:"text"`
	Base64 *string `json:"base64"`

	content []byte
}

// params reads and checks raw.
func (d *dir) params(tool string, raw json.RawMessage) (params, error) {
	var p params
	if err := d.decode(tool, raw, &p); err != nil {
		return p, err
	}
	if err := d.checkName(tool, p.Name); err != nil {
		return p, err
	}
	var err error
	switch {
	case (p.Text == nil) == (p.Base64 == nil):
		err = errors.New("either text or base64 is required")
	case p.Text != nil:
		p.content = []byte(*p.Text)
	default:
		p.content, err = base64.StdEncoding.DecodeString(*p.Base64)
	}
	if err == nil && len(p.content) > maxContent {
		err = errors.New("the content is too large")
	}
	if err != nil {
		return p, d.failf(tool, keep.ClassLogic, "bad-params", "params: %v", err)
	}
	return p, nil
}

// A mutator is what both tools that change files have.
type mutator struct {
	native.Change
	dir *dir
}

// Pin says where changes go; see connector.Pinner.
func (m *mutator) Pin() json.RawMessage {
	text, _ := json.Marshal(map[string]string{"root": m.dir.path}) // a string can be written
	return text
}

// Target names the file.
func (m *mutator) Target(raw json.RawMessage) string {
	var p params
	if json.Unmarshal(raw, &p) != nil {
		return ""
	}
	return p.Name
}

// A writer is the tool write.
type writer struct{ mutator }

// Mutate writes the file, unless m's token has done so already.
func (w *writer) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	p, err := w.dir.params("write", m.Payload)
	if err != nil {
		return connector.Receipt{}, err
	}
	c, err := w.dir.begin(ctx, "write", &m.CreatedAt)
	if err != nil {
		return connector.Receipt{}, err
	}
	defer c.end()
	want := record{Tool: "write", Token: hash(m.Token), Name: p.Name, Size: int64(len(p.content)), SHA256: checksum(p.content), Made: m.CreatedAt}
	happened, err := c.written(want)
	if err != nil {
		return connector.Receipt{}, err
	}
	if !happened {
		if err := c.settle(p.Name); err != nil {
			return connector.Receipt{}, err
		}
		if err := c.write(ctx, want, p.content); err != nil {
			return connector.Receipt{}, err
		}
	}
	c.prune()
	return want.receipt(), nil
}

// Reconcile tells by the mark and the temporary file; see the package comment.
func (w *writer) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	p, err := w.dir.params("write", m.Payload)
	if err != nil {
		return connector.Answer{}, err
	}
	c, err := w.dir.begin(ctx, "write", nil)
	if err != nil {
		return connector.Answer{}, err
	}
	defer c.end()
	want := record{Tool: "write", Token: hash(m.Token), Name: p.Name, Size: int64(len(p.content)), SHA256: checksum(p.content)}
	happened, err := c.written(want)
	if err != nil {
		return connector.Answer{}, err
	}
	if !happened {
		if err := c.remembered(connector.Recorded(ctx, m)); err != nil {
			return connector.Answer{}, err
		}
		return connector.Answer{Verdict: connector.Absent, Detail: "the content was not put in place"}, nil
	}
	return connector.Answer{Verdict: connector.Happened, Receipt: want.receipt(), Detail: "the content was put in place"}, nil
}

// temporary names the file that becomes r.Name. It is in the same directory,
// since a file can't be renamed across file systems.
func (r record) temporary() string { return path.Join(path.Dir(r.Name), ".keep-"+r.Token+".tmp") }

// written reports whether the change of want was made: its mark is there and
// its temporary file isn't.
func (c *change) written(want record) (bool, error) {
	r, marked, err := c.load(markPrefix + want.Token)
	if err != nil {
		return false, c.dir.fail(c.tool, "read the mark", err)
	}
	if !marked {
		return false, nil
	}
	if err := c.agree(r, want.Name, want.SHA256); err != nil {
		return false, err
	}
	temp, err := c.root.Lstat(want.temporary())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The rename may not be durable yet.
		if err := c.syncPath(want.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, c.dir.fail(c.tool, "flush the directory", err)
		}
		return true, nil
	case err != nil:
		return false, c.dir.fail(c.tool, "look for the temporary file", err)
	}
	// A file system without a journal may show both names after a crash.
	now, err := c.root.Lstat(want.Name)
	return err == nil && os.SameFile(temp, now), nil
}

// write makes the change. An error of a class other than unknown means that it
// wasn't made, and that no trace of it will be taken for one.
func (c *change) write(ctx context.Context, r record, content []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := c.root.Stat(r.Name); err == nil {
		if !info.Mode().IsRegular() {
			return c.dir.failf(c.tool, keep.ClassLogic, "bad-name", "%q is not a file", r.Name)
		}
		mode = info.Mode().Perm()
	}
	mark, temp := markPrefix+r.Token, r.temporary()
	c.dir.step("start")
	err := c.mkdirs(r.Name)
	if err == nil {
		err = c.writeDurable(temp, content, mode)
	}
	var made fs.FileInfo
	if err == nil {
		made, err = c.root.Lstat(temp)
	}
	if err == nil {
		// Before the mark: a mark without this file means that it happened.
		err = c.syncPath(r.Name)
	}
	c.dir.step("temporary")
	if err == nil {
		err = c.save(mark, r)
	}
	c.dir.step("marked")
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = c.root.Rename(temp, r.Name)
	}
	if err != nil && c.inPlace(made, temp, r.Name) {
		err = nil
	}
	if err != nil {
		return c.undo(mark, temp, err)
	}
	c.dir.step("renamed")
	if err := c.syncPath(r.Name); err != nil {
		return c.unknown("flush the directory", err)
	}
	c.dir.step("flushed")
	return nil
}

// inPlace reports whether a temporary file has become name. Over a network a rename may be made and answered with an error: the
// first answer was lost, and the request that repeated it found nothing to rename.
func (c *change) inPlace(made fs.FileInfo, temp, name string) bool {
	_, err := c.root.Lstat(temp)
	now, err2 := c.root.Lstat(name)
	return made != nil && errors.Is(err, fs.ErrNotExist) && err2 == nil && os.SameFile(made, now)
}

// undo takes back what came before the rename. The mark goes first: left alone
// it would say that the change was made.
func (c *change) undo(mark, temp string, cause error) error {
	if err := c.drop(mark); err != nil {
		return c.unknown("take back the mark", err)
	}
	c.root.Remove(temp)
	return c.dir.fail(c.tool, "write", cause)
}
