package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector/mcp"
)

// A request is answered also where its answer is none that can be written: in place of it comes an error, and it does not
// count as delivered.
func TestAnswerThatIsNoJSON(t *testing.T) {
	t.Parallel()
	bad := answer{result: json.RawMessage("this is no JSON")}
	frame, err := frameOf(bad.reply(json.RawMessage("7")))
	if err == nil || !strings.Contains(string(frame), `"id":7,"error":{"code":-32603`) {
		t.Errorf("%s, %v", frame, err)
	}
	b := batch{replies: []*batchReply{{message: bad.reply(json.RawMessage("7"))}, {message: answer{}.reply(json.RawMessage(`"8"`))}}}
	frame, _, err = b.wait()
	var all []mcp.Message
	if json.Unmarshal(frame, &all) != nil || err == nil || len(all) != 2 || all[0].Error == nil || string(all[1].Result) != "{}" {
		t.Errorf("%s, %v", frame, err)
	}
}
