package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// linkSpace is white space in a header.
const linkSpace = " \t"

// A weblink is a link of the header Link, as far as it matters here.
type weblink struct {
	target string
	next   bool // it has the relation next
	anchor bool // it may be a link of another resource than the page
}

// linkedFrom returns the address of the next page, which the header of the page at an address links to.
func linkedFrom(at string, h http.Header) (string, bool, error) {
	target, ok, err := nextLink(h)
	if err != nil || !ok {
		return "", false, err
	}
	base, err := url.Parse(at)
	if err != nil {
		return "", false, err
	}
	next, err := base.Parse(target)
	if err != nil {
		return "", false, errors.New("the link to the next page is no address")
	}
	return next.String(), true, nil
}

// nextLink returns the target of the link with the relation next (RFC 8288), and whether there is one. Where readers of the header may differ it returns an error: the list may not end here. Unquoted values may have
// more characters than the RFC allows, as in type=text/html.
func nextLink(h http.Header) (target string, ok bool, err error) {
	for _, line := range h.Values("Link") {
		for rest := strings.TrimLeft(line, linkSpace+","); rest != ""; rest = strings.TrimLeft(rest, linkSpace+",") {
			var l weblink
			if l, rest, err = cutLink(rest); err != nil {
				return "", false, err
			}
			switch {
			case !l.next:
			case l.anchor:
				return "", false, errors.New("the link to the next page has an anchor")
			case ok && l.target != target:
				return "", false, errors.New("there are two next pages")
			default:
				target, ok = l.target, true
			}
		}
	}
	return target, ok, nil
}

// cutLink returns the link that s begins with, and what follows it: nothing, or a comma.
func cutLink(s string) (l weblink, rest string, err error) {
	target, rest, closed := strings.Cut(s, ">")
	target, opened := strings.CutPrefix(target, "<")
	if !opened || !closed || strings.Contains(target, "<") {
		return l, "", errors.New("a link does not begin with <target>")
	}
	l.target = target
	related := false
	for {
		rest = strings.TrimLeft(rest, linkSpace)
		if rest == "" || rest[0] == ',' {
			if !related {
				return l, "", errors.New("a link has no relation")
			}
			return l, rest, nil
		}
		if rest[0] != ';' {
			return l, "", errors.New("a link has something between its parameters")
		}
		var name, value string
		if name, value, rest, err = cutParam(strings.TrimLeft(rest[1:], linkSpace)); err != nil {
			return l, "", err
		}
		switch strings.ToLower(name) {
		case "rel":
			types := strings.Fields(value)
			if related || len(types) == 0 {
				return l, "", errors.New("a link has no relation, or it has two")
			}
			related = true
			for _, t := range types {
				l.next = l.next || strings.EqualFold(t, "next")
			}
		case "anchor":
			l.anchor = true
		}
	}
}

// cutParam returns the parameter of a link that s begins with, and what follows it. It may be empty.
func cutParam(s string) (name, value, rest string, err error) {
	name, rest = cutBefore(s, linkSpace+`=;,<>"`)
	after := strings.TrimLeft(rest, linkSpace)
	if !strings.HasPrefix(after, "=") {
		return name, "", rest, nil
	}
	rest = strings.TrimLeft(after[1:], linkSpace)
	if !strings.HasPrefix(rest, `"`) {
		value, rest = cutBefore(rest, linkSpace+`=;,<>"`)
		if value == "" || value[0] == '\'' {
			return "", "", "", errors.New("a parameter of a link has no value, or one in single quotes")
		}
		return name, value, rest, nil
	}
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			return name, b.String(), rest[i+1:], nil
		case c == '\\' && i+1 < len(rest):
			i++
		}
		b.WriteByte(rest[i])
	}
	return "", "", "", errors.New("a link has a quote that does not end")
}

// cutBefore cuts s before the first of chars.
func cutBefore(s, chars string) (before, rest string) {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}
