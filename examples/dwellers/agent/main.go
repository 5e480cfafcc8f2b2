// Command agent acts through a storm: two of three answers get lost on their way
// and become a 502. It retries with the same key until it has an answer.
package main

import (
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"
)

func main() {
	url := flag.String("url", "http://127.0.0.1:7435", "where the API is")
	n := flag.Int("n", 20, "how many actions")
	flag.Parse()
	storm := &storm{}
	sent := 0
	for i := range *n {
		key := rand.Text() // one for each action, the same for its retries
		for {
			sent++
			status, body, err := storm.post(*url, i, key)
			if err == nil && status < 500 {
				fmt.Printf("%d %s", status, body)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	fmt.Printf("%d actions, %d requests\n", *n, sent)
}

// A storm is a network that loses answers.
type storm struct{ requests int }

func (s *storm) post(url string, dweller int, key string) (status int, body string, err error) {
	r, err := http.NewRequest("POST", fmt.Sprintf("%s/api/dwellers/%d/act", url, dweller), strings.NewReader(`{"action":"wave"}`))
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Idempotency-Key", key)
	r.Header.Set("X-User-Id", "agent-7")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if s.requests++; s.requests%3 != 0 {
		return http.StatusBadGateway, "", err
	}
	return resp.StatusCode, string(b), err
}
