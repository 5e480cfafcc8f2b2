package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/keep-run/keep/connector/mcp"
)

// The version of 2026-07-28 has no handshake: each request says which version it is of.

const (
	metaProtocol     = "io.modelcontextprotocol/" // what members of _meta begin with that are of the protocol
	metaVersion      = metaProtocol + "protocolVersion"
	metaServer       = metaProtocol + "serverInfo"
	metaCapabilities = metaProtocol + "clientCapabilities"
	metaLogLevel     = metaProtocol + "logLevel"
	metaSubscription = metaProtocol + "subscriptionId"

	headerMismatch     = -32020
	missingCapability  = -32021
	unsupportedVersion = -32022
)

// speaks are all versions, newest first.
func speaks() []string { return append([]string{mcp.Modern}, versions...) }

// metaOf returns the _meta of a request.
func metaOf(params json.RawMessage) map[string]json.RawMessage {
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(params, &p)
	return p.Meta
}

// isModern reports whether a request says that it is of the version of 2026-07-28.
func isModern(params json.RawMessage) bool {
	var version string
	return json.Unmarshal(metaOf(params)[metaVersion], &version) == nil && version == mcp.Modern
}

// refusedVersion returns the version that a request says it is of, and whether it is not known here.
func refusedVersion(params json.RawMessage) (version string, refused bool) {
	raw := metaOf(params)[metaVersion]
	if raw == nil {
		return "", false
	}
	if json.Unmarshal(raw, &version) != nil {
		return string(raw), true
	}
	return version, !slices.Contains(speaks(), version)
}

// checkMeta returns what a request of the version of 2026-07-28 lacks; nil: nothing.
func checkMeta(params json.RawMessage) *mcp.RPCError {
	meta := metaOf(params)
	var capabilities map[string]json.RawMessage
	for name, into := range map[string]any{metaVersion: new(string), metaCapabilities: &capabilities} {
		if meta[name] == nil || json.Unmarshal(meta[name], into) != nil {
			return &mcp.RPCError{Code: invalidParams, Message: fmt.Sprintf("_meta has no %q, or what it has is none", name)}
		}
	}
	return nil
}

// checkInputs returns what is wrong with what a client adds to a request that needed more, which is an object for each
// that was asked for; nil: nothing.
func checkInputs(in mcp.Inputs) *mcp.RPCError {
	var all map[string]map[string]json.RawMessage
	err := json.Unmarshal(in.Responses, &all)
	for _, one := range all {
		if one == nil {
			err = errors.New("null")
		}
	}
	if in.Responses != nil && (err != nil || all == nil) {
		return &mcp.RPCError{Code: invalidParams, Message: "inputResponses is an object with an object for each that was asked for; this was not passed on, and a call that needs it waits for it"}
	}
	return nil
}

// unsupported refuses a request of a version that is not known here.
func unsupported(version string) answer {
	data, _ := json.Marshal(map[string]any{"supported": speaks(), "requested": version[:min(len(version), 100)]})
	return answer{err: &mcp.RPCError{Code: unsupportedVersion, Message: fmt.Sprintf("version %.40q of the protocol is not known here", version), Data: data}}
}

// discover answers server/discover.
func (s *session) discover(ctx context.Context) answer {
	result, _ := json.Marshal(map[string]any{"supportedVersions": speaks(), "capabilities": s.g.capabilities(ctx, s.agent),
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
