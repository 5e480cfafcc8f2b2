// Command server is the dwellers' API: it acts on each request, whatever came
// before. It knows nothing of idempotency keys.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "address")
	flag.Parse()
	var world world
	mux := http.NewServeMux()
	for _, pattern := range []string{
		"POST /api/dwellers/{id}/act", "POST /api/dwellers/{id}/heartbeat", "POST /api/stories", "POST /api/proposals",
		"POST /api/review/{type}/{id}/feedback", "POST /api/auth/agent",
	} {
		mux.HandleFunc(pattern, world.act)
	}
	mux.HandleFunc("GET /api/count", world.count)
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	log.Fatal(http.Serve(l, mux))
}

// A world counts what happened in it.
type world struct {
	mu      sync.Mutex // protects actions
	actions int
}

func (w *world) act(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actions++
	rw.Header().Set("Location", fmt.Sprintf("/api/actions/%d", w.actions))
	rw.WriteHeader(http.StatusCreated)
	fmt.Fprintf(rw, `{"action":%d,"path":%q}`+"\n", w.actions, r.URL.Path)
}

func (w *world) count(rw http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintln(rw, w.actions)
}
