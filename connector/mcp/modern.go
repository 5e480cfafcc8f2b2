package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The version of 2026-07-28 has no handshake: each request says of which version it is, and what its
// client can do. By HTTP, headers repeat what a proxy may want to know.

// Modern is that version.
const Modern = "2026-07-28"

const (
	metaPrefix       = "io.modelcontextprotocol/"
	metaVersion      = metaPrefix + "protocolVersion"
	metaClient       = metaPrefix + "clientInfo"
	metaCapabilities = metaPrefix + "clientCapabilities"
	metaLogLevel     = metaPrefix + "logLevel"
)

// A request is what a link sends.
type request struct {
	method string
	params json.RawMessage
	header map[string]string // by HTTP
}

// modernRequest returns a request as the version of 2026-07-28 has it.
func (s *Server) modernRequest(c *Client, method string, params json.RawMessage) (request, error) {
	all := make(map[string]json.RawMessage)
	if len(params) > 0 {
		if err := json.Unmarshal(params, &all); err != nil {
			return request{}, err
		}
	}
	meta := make(map[string]json.RawMessage)
	if all["_meta"] != nil {
		if err := json.Unmarshal(all["_meta"], &meta); err != nil {
			return request{}, err
		}
	}
	meta[metaVersion] = json.RawMessage(`"` + Modern + `"`)
	meta[metaClient] = json.RawMessage(`{"name":"keep","version":"1"}`)
	meta[metaCapabilities] = json.RawMessage("{}")
	if c.Capabilities != nil {
		meta[metaCapabilities] = c.Capabilities
	}
	if c.LogLevel != "" {
		meta[metaLogLevel], _ = json.Marshal(c.LogLevel)
	}
	all["_meta"], _ = json.Marshal(meta)
	raw, err := json.Marshal(all)
	if err != nil {
		return request{}, err
	}
	r := request{method: method, params: raw, header: map[string]string{"MCP-Protocol-Version": Modern, "Mcp-Method": method}}
	if name := NameOf(method, raw); name != "" {
		r.header["Mcp-Name"] = headerValue(name)
		if method == "tools/call" {
			s.mu.Lock()
			mirrored := s.mirrored[name]
			s.mu.Unlock()
			for _, m := range mirrored {
				if v, ok := m.value(all["arguments"]); ok {
					r.header["Mcp-Param-"+m.Header] = headerValue(v)
				}
			}
		}
	}
	return r, nil
}

// NameOf returns what a request is about, which a header repeats; empty: nothing.
func NameOf(method string, params json.RawMessage) string {
	var p struct{ Name, URI string }
	_ = json.Unmarshal(params, &p)
	switch method {
	case "tools/call", "prompts/get":
		return p.Name
	case "resources/read":
		return p.URI
	}
	return ""
}

// A Mirrored param is repeated in a header, Mcp-Param- and its name.
type Mirrored struct {
	Path   []string
	Header string
}

const maxMirrored = 32

// MirroredOf returns the params of a tool that are repeated in headers, from its entry.
func MirroredOf(entry json.RawMessage) []Mirrored {
	var t struct {
		InputSchema schema `json:"inputSchema"`
	}
	_ = json.Unmarshal(entry, &t) // what is none of it is left out, such as true for a param that may be anything
	return t.InputSchema.mirrored(nil, nil)
}

type schema struct {
	Header     json.RawMessage   `json:"x-mcp-header"`
	Properties map[string]schema `json:"properties"`
}

func (s schema) mirrored(path []string, out []Mirrored) []Mirrored {
	var header string
	if len(path) > 0 && json.Unmarshal(s.Header, &header) == nil && isToken(header) && len(out) < maxMirrored {
		out = append(out, Mirrored{slices.Clone(path), header})
	}
	if len(path) > 8 {
		return out
	}
	for name, p := range s.Properties {
		out = p.mirrored(append(path, name), out)
	}
	return out
}

func isToken(name string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", c)
	})
}

// value returns the param as its header has it; false: the arguments have none.
func (m Mirrored) value(arguments json.RawMessage) (string, bool) {
	at := arguments
	for _, name := range m.Path {
		var all map[string]json.RawMessage
		if json.Unmarshal(at, &all) != nil || all[name] == nil {
			return "", false
		}
		at = all[name]
	}
	var v any
	if json.Unmarshal(at, &v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		if v == float64(int64(v)) {
			return strconv.FormatInt(int64(v), 10), true
		}
	}
	return "", false
}

const encodedBefore, encodedAfter = "=?base64?", "?="

// headerValue returns a text as a header can carry it.
func headerValue(text string) string {
	plain := text == strings.TrimSpace(text) && !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
	if plain && !(strings.HasPrefix(text, encodedBefore) && strings.HasSuffix(text, encodedAfter)) {
		return text
	}
	return encodedBefore + base64.StdEncoding.EncodeToString([]byte(text)) + encodedAfter
}

// HeaderText returns the text that a header carries.
func HeaderText(value string) (string, error) {
	value = strings.TrimSpace(value)
	rest, ok := strings.CutPrefix(value, encodedBefore)
	if !ok || !strings.HasSuffix(rest, encodedAfter) {
		return value, nil
	}
	text, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSuffix(rest, encodedAfter))
	if err != nil {
		return "", errors.New("it is not base64")
	}
	return string(text), nil
}

// CheckHeaders returns what is wrong with the headers of a request of the version of 2026-07-28: they
// must repeat what is in it. Get returns a header, empty if there is none.
func CheckHeaders(get func(string) string, method string, params json.RawMessage, mirrored []Mirrored) error {
	check := func(name, want string, needed bool) error {
		got := get(name)
		text, err := HeaderText(got)
		switch {
		case got == "" && (needed || want != ""):
			return fmt.Errorf("the header %s is missing", name)
		case err != nil:
			return fmt.Errorf("the header %s: %w", name, err)
		case text != want:
			return fmt.Errorf("the header %s is %.80q, and the message has %.80q", name, text, want)
		}
		return nil
	}
	if err := check("Mcp-Method", method, true); err != nil {
		return err
	}
	if name := NameOf(method, params); name != "" {
		if err := check("Mcp-Name", name, true); err != nil {
			return err
		}
	}
	var p struct {
		Arguments json.RawMessage `json:"arguments"`
	}
	_ = json.Unmarshal(params, &p)
	for _, m := range mirrored {
		want, _ := m.value(p.Arguments)
		if err := check("Mcp-Param-"+m.Header, want, false); err != nil {
			return err
		}
	}
	return nil
}

// discover asks a server of the version of 2026-07-28 what it is.
func (s *Server) discover(ctx context.Context, l link) (Info, error) {
	r, err := s.modernRequest(new(Client), "server/discover", nil)
	if err != nil {
		return Info{}, err
	}
	ans, err := l.call(ctx, r)
	if err != nil {
		return Info{}, err
	}
	if ans.Error != nil {
		return Info{}, fmt.Errorf("server/discover: %w", ans.Error)
	}
	var d struct {
		SupportedVersions []string        `json:"supportedVersions"`
		Capabilities      json.RawMessage `json:"capabilities"`
		Instructions      string          `json:"instructions"`
	}
	if err := json.Unmarshal(ans.Result, &d); err != nil {
		return Info{}, fmt.Errorf("read the answer to server/discover: %w", err)
	}
	if !slices.Contains(d.SupportedVersions, Modern) {
		return Info{}, fmt.Errorf("it does not speak version %s of the protocol", Modern)
	}
	return Info{Modern, d.Capabilities, d.Instructions}, nil
}
