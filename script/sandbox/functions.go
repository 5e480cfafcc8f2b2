package sandbox

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// errThrow makes a host function throw.
var errThrow = errors.New("throw")

// hostFunctions are what the prelude finds in its `host` object, each with the
// number of its arguments. They return a new value, or 0 for undefined.
//
// They run inside of the engine and must be short: whatever takes a script's
// own time is not theirs to do.
var hostFunctions = map[string]struct {
	args int
	call func(p *phase, v []value) (value, error)
}{
	"call":   {5, (*phase).hostCall},
	"begin":  {3, (*phase).hostBegin},
	"end":    {0, (*phase).hostEnd},
	"done":   {1, (*phase).hostDone},
	"fail":   {1, (*phase).hostFail},
	"log":    {3, (*phase).hostLog},
	"locate": {2, (*phase).hostLocate},
	"where":  {1, (*phase).hostWhere},
	"random": {1, (*phase).hostRandom},
	"digest": {2, (*phase).hostDigest},
	"encode": {1, (*phase).hostEncode},
	"decode": {2, (*phase).hostDecode},
	"url":    {0, (*phase).hostURL},
}

// hostCall dispatches env.host_call(name, length, this, argc, argv). Its result
// is an owned handle, or 0 for an exception that was thrown.
func hostCall(in *instance, s []uint64) {
	name, _ := in.mem.Read(uint32(s[0]), uint32(s[1]))
	f, ok := hostFunctions[string(name)]
	argc, argv := uint32(s[3]), uint32(s[4])
	p := in.phase
	var args [5]value
	if !ok || in.handles(argc, argv, args[:f.args]) != nil {
		s[0] = in.throw(false)
		return
	}
	// Time spent here is the script's, and loops of native code may be rare.
	if p.check(time.Now()); p.stop != nil {
		p.locate()
		s[0] = in.throw(true)
		return
	}
	// The result is there before anything happens: a call that was taken must
	// not look to the script as if it had failed.
	undefined, err := in.do(in.fn.dup, uint64(p.rt.entry.undefined))
	if err != nil || undefined == 0 {
		s[0] = in.throw(false)
		return
	}
	v, err := f.call(p, args[:f.args])
	switch {
	case p.stop != nil: // this very call was too much
		p.locate()
		s[0] = in.throw(true)
	case err != nil:
		s[0] = in.throw(false)
	case v != 0:
		s[0] = uint64(v)
	default:
		s[0] = uint64(undefined)
	}
}

// throw makes a host function throw an Error without a message, which only
// shortness of memory or a bug can bring to a script; or, to end the script,
// one that JavaScript cannot catch. It returns what host_call must return.
func (in *instance) throw(end bool) uint64 {
	e, err := in.do(in.fn.newError)
	if err != nil || e == 0 {
		return 0
	}
	if _, err := in.do(in.fn.throw, uint64(e)); err != nil {
		return 0
	}
	if cell, ok := in.mem.ReadUint64Le(e); ok && end {
		_, _ = in.do(in.fn.uncatchable, uint64(in.phase.rt.entry.context), cell)
	}
	return 0
}

// take copies a string argument, at most limit bytes of it.
func (p *phase) take(v value, limit int) (string, int, error) {
	return p.in.string(v, p.rt.entry.scratch, limit)
}

// hostCall queues a call: its number, its scope, its name, its place, the arguments.
// The number of the item.begin that hostBegin does not take is 0.
func (p *phase) hostCall(v []value) (value, error) {
	id, err := p.in.number(v[0])
	if err != nil {
		return 0, err
	}
	scope, err := p.in.number(v[1])
	if err != nil {
		return 0, err
	}
	q := request{id: id, scope: scope}
	if q.name, _, err = p.take(v[2], maxName); err != nil {
		return 0, err
	}
	q.name = strings.ToValidUTF8(q.name, "\uFFFD")
	spelled := q.name[strings.LastIndexByte(q.name, '.')+1:]
	if strings.HasPrefix(q.name, "item.") {
		spelled = "withItem"
	}
	if q.at, err = p.placed(v[3], spelled); err != nil {
		return 0, err
	}
	args, done, err := p.in.text(v[4], p.rt.entry.scratch)
	if err != nil {
		return 0, err
	}
	if len(args) <= p.limits.Result {
		q.args = arguments(bytes.Clone(args))
	} else {
		p.limit("result", int64(p.limits.Result), q.at, q.name)
	}
	if err := done(); err != nil {
		return 0, err
	}
	if q.name == "item.fail" {
		p.mapFailure(&q)
	}
	p.enqueue(q)
	return 0, nil
}

// hostBegin queues the item.begin of an item: its place, its id and its title.
func (p *phase) hostBegin(v []value) (value, error) {
	at, err := p.placed(v[0], "withItem")
	if err != nil {
		return 0, err
	}
	q := request{name: "item.begin", at: at}
	size := 0
	for _, v := range v[1:] {
		b, done, err := p.in.text(v, p.rt.entry.scratch)
		if err != nil {
			return 0, err
		}
		if size += len(b); size <= p.limits.Result {
			q.args = append(q.args, appendJSON(nil, string(b)))
		}
		if err := done(); err != nil {
			return 0, err
		}
	}
	if size > p.limits.Result {
		p.limit("result", int64(p.limits.Result), q.at, q.name)
	}
	p.enqueue(q)
	return 0, nil
}

// hostEnd notes that the handler of the open item has settled.
func (p *phase) hostEnd([]value) (value, error) {
	p.ending = p.stop == nil
	return 0, nil
}

// hostDone takes the JSON that the handler returned, or "" for undefined.
func (p *phase) hostDone(v []value) (value, error) {
	b, done, err := p.in.text(v[0], p.rt.entry.scratch)
	if err != nil {
		return 0, err
	}
	limit := p.limits.Result
	if p.loading {
		limit = maxDeclaration
	}
	if len(b) > limit {
		p.limit("result", int64(limit), p.where, "")
	} else if p.stop == nil {
		p.settled = true
		if len(b) > 0 {
			p.result = bytes.Clone(b)
		}
	}
	return 0, done()
}

// hostFail takes what the script threw, described by the prelude.
func (p *phase) hostFail(v []value) (value, error) {
	s, _, err := p.take(v[0], maxFailure)
	if err == nil && p.failure == "" {
		p.failure = s
	}
	return 0, err
}

// hostLog takes a log line: level, place, text.
func (p *phase) hostLog(v []value) (value, error) {
	level, _, err := p.take(v[0], 16)
	if err != nil {
		return 0, err
	}
	at, err := p.placed(v[1], "")
	if err != nil {
		return 0, err
	}
	text, n, err := p.take(v[2], p.limits.LogLine)
	if err != nil {
		return 0, err
	}
	p.write(level, at, text, n)
	return 0, nil
}

// hostLocate answers a place, and the name of the function that was called there
// or "", with the place in the author's files, as JSON.
func (p *phase) hostLocate(v []value) (value, error) {
	name, _, err := p.take(v[1], maxName)
	if err != nil {
		return 0, err
	}
	at, err := p.placed(v[0], name)
	if err != nil {
		return 0, err
	}
	return p.in.newString(at.json())
}

// hostWhere takes the place to report if nothing better is known.
func (p *phase) hostWhere(v []value) (value, error) {
	at, err := p.placed(v[0], "")
	if err == nil && !at.IsZero() {
		p.where = at
	}
	return 0, err
}

// hostRandom answers a number, as text, with that many random bytes. A pure call gets
// none.
func (p *phase) hostRandom(v []value) (value, error) {
	s, _, err := p.take(v[0], 16)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 1<<16 || p.pure {
		return 0, errThrow
	}
	b := make([]byte, n)
	p.asked = true
	p.chance.read(b)
	return p.in.newBytes(b)
}

// buffer reads an ArrayBuffer where it lies.
func (p *phase) buffer(v value) ([]byte, error) {
	at, err := p.in.do(p.in.fn.bufferOf, uint64(v), uint64(p.rt.entry.scratch))
	if err != nil {
		return nil, err
	}
	n, _ := p.in.mem.ReadUint32Le(p.rt.entry.scratch)
	if n == 0 {
		return nil, nil
	}
	b, ok := p.in.mem.Read(at, n)
	if !ok || at == 0 {
		return nil, errThrow
	}
	return b, nil
}

// hostDigest hashes an ArrayBuffer.
func (p *phase) hostDigest(v []value) (value, error) {
	name, _, err := p.take(v[0], 16)
	if err != nil {
		return 0, err
	}
	b, err := p.buffer(v[1])
	if err != nil {
		return 0, err
	}
	switch name {
	case "sha-1":
		sum := sha1.Sum(b)
		return p.in.newBytes(sum[:])
	case "sha-256":
		sum := sha256.Sum256(b)
		return p.in.newBytes(sum[:])
	case "sha-384":
		sum := sha512.Sum384(b)
		return p.in.newBytes(sum[:])
	case "sha-512":
		sum := sha512.Sum512(b)
		return p.in.newBytes(sum[:])
	}
	return 0, errThrow
}

// hostEncode turns a string into UTF-8 bytes.
func (p *phase) hostEncode(v []value) (value, error) {
	b, done, err := p.in.text(v[0], p.rt.entry.scratch)
	if err != nil {
		return 0, err
	}
	b = bytes.Clone(b)
	if err := done(); err != nil {
		return 0, err
	}
	return p.in.newBytes(b)
}

// hostDecode turns an ArrayBuffer into a string. Bytes that are not UTF-8
// become U+FFFD, or with "fatal" make the answer undefined.
func (p *phase) hostDecode(v []value) (value, error) {
	mode, _, err := p.take(v[1], 16)
	if err != nil {
		return 0, err
	}
	b, err := p.buffer(v[0])
	if err != nil {
		return 0, err
	}
	if utf8.Valid(b) {
		b = bytes.Clone(b) // making the string may move what b points into
	} else if mode == "fatal" {
		return 0, nil
	} else {
		b = replaceInvalid(b)
	}
	return p.in.newString(b)
}

// replaceInvalid is the WHATWG decoder: U+FFFD stands for each longest prefix
// of a character that is cut short, and for each other byte out of place.
// (Go's own conversion gives one for every byte.)
func replaceInvalid(b []byte) []byte {
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			out = append(out, b[:n]...)
			b = b[n:]
			continue
		}
		out = utf8.AppendRune(out, utf8.RuneError)
		b = b[cutShort(b):]
	}
	return out
}

// cutShort is the length of the broken character that b begins with: its first
// byte, and those after it that could have continued it.
func cutShort(b []byte) int {
	need, low, high := 0, byte(0x80), byte(0xbf)
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		need = 1
	case c >= 0xe0 && c <= 0xef:
		need = 2
		if c == 0xe0 {
			low = 0xa0
		} else if c == 0xed {
			high = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		need = 3
		if c == 0xf0 {
			low = 0x90
		} else if c == 0xf4 {
			high = 0x8f
		}
	}
	n := 1
	for ; n <= need && n < len(b) && b[n] >= low && b[n] <= high; n++ {
		low, high = 0x80, 0xbf
	}
	return n
}

// hostURL returns the function that makes URL and URLSearchParams.
func (p *phase) hostURL([]value) (value, error) { return p.in.evalCompiled(p.rt.url) }
