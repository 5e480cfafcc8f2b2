//go:build unix

package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/keep-run/keep/connector/mcp"
)

// serveEcho is an MCP server whose tools do nothing, at once.
func serveEcho() {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		result := `{"content":[{"type":"text","text":"done"}]}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"write","inputSchema":{"type":"object"}},{"name":"read","inputSchema":{"type":"object"}}]}`
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	}
}

// echoes are servers that are processes of their own.
func echoes(n int) []mcp.ServerConfig {
	var list []mcp.ServerConfig
	for i := range n {
		list = append(list, mcp.ServerConfig{Name: fmt.Sprintf("echo%d", i), Command: os.Args[0], Env: map[string]string{"GATEWAY_TEST_ROLE": "echo"}})
	}
	return list
}
