package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

var appendSpec = connector.Spec{
	Name:        "append",
	Effect:      connector.Mutate,
	Description: "Adds text to the end of a file, exactly as given; the file is made if there is none.",
	Params:      contentParams,
	Result: json.RawMessage(`{"type":"object","required":["name","offset","size"],"properties":{
		"name":{"type":"string"},"offset":{"type":"integer"},"size":{"type":"integer"}}}`),
	Level:        keep.LevelKey,
	Marked:       true,
	Identity:     []string{"name"},
	VerifyByHand: "Look at the end of the file.",
}

// An appender is the tool append.
type appender struct{ mutator }

// Mutate appends, unless m's token has done so already.
func (a *appender) Mutate(ctx context.Context, m keep.Mutation) (connector.Receipt, error) {
	p, err := a.dir.params("append", m.Payload)
	if err != nil {
		return connector.Receipt{}, err
	}
	c, err := a.dir.begin(ctx, "append", &m.CreatedAt)
	if err != nil {
		return connector.Receipt{}, err
	}
	defer c.end()
	done, r, err := c.appended(hash(m.Token), p)
	if err != nil {
		return connector.Receipt{}, err
	}
	if !done {
		if r, err = c.append(ctx, m, p); err != nil {
			return connector.Receipt{}, err
		}
	}
	c.prune()
	return r.receipt(), nil
}

// Reconcile settles what a crash left behind and tells by the mark; see the
// package comment.
func (a *appender) Reconcile(ctx context.Context, m keep.Mutation) (connector.Answer, error) {
	p, err := a.dir.params("append", m.Payload)
	if err != nil {
		return connector.Answer{}, err
	}
	c, err := a.dir.begin(ctx, "append", nil)
	if err != nil {
		return connector.Answer{}, err
	}
	defer c.end()
	done, r, err := c.appended(hash(m.Token), p)
	switch {
	case err != nil:
		return connector.Answer{}, err
	case !done:
		if err := c.remembered(connector.Recorded(ctx, m)); err != nil {
			return connector.Answer{}, err
		}
		return connector.Answer{Verdict: connector.Absent, Detail: "nothing was appended"}, nil
	}
	return connector.Answer{Verdict: connector.Happened, Receipt: r.receipt(), Detail: "the text is in the file"}, nil
}

// appended settles the note of the file and then reports whether the token's
// text was appended.
func (c *change) appended(token string, p params) (bool, record, error) {
	if err := c.settle(p.Name); err != nil {
		return false, record{}, err
	}
	if _, lost, err := c.load(lostPrefix + token); lost || err != nil {
		return false, record{}, c.dir.failf(c.tool, keep.ClassPrecondition, "foreign-writer",
			"another program wrote into %q after a crash, or took it away; only a person can tell what happened", p.Name)
	}
	r, done, err := c.load(markPrefix + token)
	if err != nil {
		return false, r, c.dir.fail(c.tool, "read the mark", err)
	}
	if !done {
		return false, r, nil
	}
	return true, r, c.agree(r, p.Name, checksum(p.content))
}

// settle ends an append that the process did not live to end. What changes the file next does it first, under whichever of its
// names: it tells how far that came.
func (c *change) settle(name string) error {
	for _, at := range slices.Compact([]string{c.place(name), name}) { // earlier versions noted the name
		if err := c.settleNote(notePrefix + hash(at)); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) settleNote(note string) error {
	r, found, err := c.load(note)
	if err != nil {
		return c.dir.fail(c.tool, "read the note", err)
	}
	if !found {
		return nil
	}
	_, done, err := c.load(markPrefix + r.Token)
	if err == nil && !done {
		err = c.finish(r)
	}
	if err == nil {
		err = c.drop(note)
	}
	if err != nil {
		return c.dir.fail(c.tool, "settle an earlier append", err)
	}
	return nil
}

// finish finds out how far the append of a note came, and completes one that
// had begun. It leaves a mark if it happened, a lost record if nobody can know,
// and nothing if it didn't happen.
func (c *change) finish(r record) error {
	tail, err := c.tail(r)
	switch {
	case err != nil:
		return err
	case tail == nil || len(tail) > 0 && !bytes.HasPrefix(tail, r.Text) && !bytes.HasPrefix(r.Text, tail):
		return c.saveOutcome(lostPrefix, r)
	case len(tail) == 0 && len(r.Text) > 0:
		return nil // the file has its old size
	}
	// If nothing is left to add, it is flushed at least: the process may have died before it did that, and the mark outlives a loss of power.
	if _, err := c.extend(r.Name, r.Text[len(tail):]); err != nil {
		return err
	}
	return c.saveOutcome(markPrefix, r)
}

// saveOutcome keeps r without its text, which only a note needs.
func (c *change) saveOutcome(prefix string, r record) error {
	r.Text = nil
	return c.save(prefix+r.Token, r)
}

// tail returns what the file has after the old size, as far as the text goes.
// Nil means that the file is shorter than it was, or gone.
func (c *change) tail(r record) ([]byte, error) {
	f, err := c.root.Open(r.Name)
	if errors.Is(err, fs.ErrNotExist) { // it was there before the note, also if it was new
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < r.Offset {
		return nil, err
	}
	tail := make([]byte, min(info.Size()-r.Offset, int64(len(r.Text))))
	_, err = f.ReadAt(tail, r.Offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return tail, err
}

// extend appends text and makes it durable. Begun says that something of it may be in the file.
func (c *change) extend(name string, text []byte) (begun bool, err error) {
	f, err := c.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return false, err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return true, err
	}
	c.dir.step("extended")
	return true, c.syncPath(name)
}

// append makes the change and returns its record.
func (c *change) append(ctx context.Context, m keep.Mutation, p params) (record, error) {
	r := record{Tool: "append", Token: hash(m.Token), Name: p.Name, Size: int64(len(p.content)), SHA256: checksum(p.content), Text: p.content, Made: m.CreatedAt}
	info, err := c.root.Stat(p.Name)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return r, c.dir.failf(c.tool, keep.ClassLogic, "bad-name", "%q is not a file", p.Name)
	case err == nil:
		r.Offset = info.Size()
	case !errors.Is(err, fs.ErrNotExist):
		return r, c.dir.fail(c.tool, "look at "+p.Name, err)
	}
	note, isNew := notePrefix+hash(c.place(p.Name)), err != nil
	c.dir.step("start")
	if err = c.mkdirs(p.Name); err == nil && isNew {
		_, err = c.extend(p.Name, nil) // if it is gone later, somebody took it away, with the text or without
	}
	if err == nil {
		err = c.save(note, r)
	}
	c.dir.step("noted")
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.drop(note) // if it stays, it says that nothing was appended
		return r, c.dir.fail(c.tool, "append", err)
	}
	if begun, err := c.extend(p.Name, p.content); err != nil {
		return r, c.retract(note, r, begun, err)
	}
	c.dir.step("appended")
	if err := c.saveOutcome(markPrefix, r); err != nil {
		return r, c.unknown("mark the change", err)
	}
	c.dir.step("marked")
	c.root.Remove(keepDir + "/" + note) // if it stays, the mark explains it
	c.dir.step("cleared")
	return r, nil
}

// ours returns an error unless what f has after the old size is the beginning
// of r's text and nothing else.
func (c *change) ours(f *os.File, r record) error {
	tail, err := c.tail(r)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && (tail == nil || !bytes.HasPrefix(r.Text, tail) || info.Size() != r.Offset+int64(len(tail))) {
		err = errors.New("another program wrote into the file")
	}
	return err
}

// retract takes back an append that stopped in the middle, as on a full disk. A file that is gone was taken away, with what was
// begun.
func (c *change) retract(note string, r record, begun bool, cause error) error {
	f, err := c.root.OpenFile(r.Name, os.O_WRONLY, 0)
	if err == nil {
		if err = c.ours(f, r); err == nil {
			err = errors.Join(f.Truncate(r.Offset), f.Sync())
		}
		f.Close()
	}
	if err != nil && (begun || !errors.Is(err, fs.ErrNotExist)) {
		return c.unknown("append", cause)
	}
	if err := c.drop(note); err != nil {
		return c.unknown("append", cause)
	}
	return c.dir.fail(c.tool, "append", cause)
}
