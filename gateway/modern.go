package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/keep-run/keep/connector/mcp"
)

// The version of 2026-07-28 has no handshake: each request says which version it is of.

// modern is that version.
const modern = "2026-07-28"

const (
	metaProtocol = "io.modelcontextprotocol/" // what members of _meta begin with that are of the protocol
	metaVersion  = metaProtocol + "protocolVersion"
	metaServer   = metaProtocol + "serverInfo"

	unsupportedVersion = -32022
)

// speaks are all versions, newest first.
func speaks() []string { return append([]string{modern}, versions...) }

// versionOf returns the version that a request says it is of; empty: it says none. Refused says
// that it is not known here.
func versionOf(params json.RawMessage) (version string, isModern, refused bool) {
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if json.Unmarshal(params, &p) != nil || p.Meta[metaVersion] == nil {
		return "", false, false
	}
	if json.Unmarshal(p.Meta[metaVersion], &version) != nil {
		return string(p.Meta[metaVersion]), false, true
	}
	return version, version == modern, !slices.Contains(speaks(), version)
}

// unsupported refuses a request of a version that is not known here.
func unsupported(version string) answer {
	data, _ := json.Marshal(map[string]any{"supported": speaks(), "requested": version})
	return answer{err: &mcp.RPCError{Code: unsupportedVersion, Message: fmt.Sprintf("version %.40q of the protocol is not known here", version), Data: data}}
}

// discover answers server/discover.
func (s *session) discover(ctx context.Context) answer {
	result, _ := json.Marshal(map[string]any{"supportedVersions": speaks(), "capabilities": s.g.capabilities(ctx),
		"instructions": instructions, "_meta": map[string]any{metaServer: s.g.info()}})
	return answer{result: result}
}

// complete returns a result as the version of 2026-07-28 has it: it says that it is whole, and a
// list that it is not to be kept.
func complete(result json.RawMessage, method string) json.RawMessage {
	var all map[string]json.RawMessage
	if len(result) == 0 {
		result = json.RawMessage("{}")
	}
	if json.Unmarshal(result, &all) != nil || all == nil {
		return result
	}
	add := ""
	if all["resultType"] == nil {
		add = `"resultType":"complete"`
	}
	if all["ttlMs"] == nil && slices.Contains([]string{"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}, method) {
		add += `,"ttlMs":0,"cacheScope":"private"`
	}
	return insert(result, add, len(all) == 0)
}
