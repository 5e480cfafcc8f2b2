package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/keep-run/keep/host/feed"
)

// A Changes is the stream of what changes.
type Changes struct{ body io.ReadCloser }

// Changes opens the stream of what changes, until ctx ends; see [Changes.Each]. An error means
// that there is no stream.
func (c *Client) Changes(ctx context.Context) (*Changes, error) {
	r, err := c.request(ctx, call{method: http.MethodGet, path: []string{strings.TrimPrefix(ChangesPath, "/")}})
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: c.Transport}
	res, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		return nil, problemIn(res)
	}
	return &Changes{res.Body}, nil
}

// Each calls f when something of one of the kinds may have changed, for the caller to read it
// again. It returns when the stream ends, and closes it; what changed between two streams is
// not known.
func (s *Changes) Each(f func(), kinds ...feed.Kind) {
	defer s.body.Close()
	lines := bufio.NewScanner(s.body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var c Changed
		if json.Unmarshal([]byte(data), &c) != nil {
			return
		}
		if slices.ContainsFunc(c.Kinds, func(k feed.Kind) bool { return k == feed.Reset || slices.Contains(kinds, k) }) {
			f()
		}
	}
}
