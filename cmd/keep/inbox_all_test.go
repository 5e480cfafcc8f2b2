package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// Of a question whose answer has no answer nobody knows whether it was recorded: that is said, and not that it was not.
func TestAnswerAllWithoutAnAnswer(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "upstream timed out")
	}))
	defer server.Close()
	a := newApp(io.Discard, io.Discard)
	list := []answeredAll{{ID: "esc_1"}, {ID: "esc_2"}}
	refused, err := a.doAll(t.Context(), &api.Client{URL: server.URL}, list, api.DecisionRequest{Action: keep.Approve})
	if refused != 0 || asked != 1 || err == nil || !strings.HasPrefix(err.Error(), "whether question esc_1 was answered is not known, and those after it were not: ") {
		t.Errorf("%d refused, %d asked, %v", refused, asked, err)
	}
}
