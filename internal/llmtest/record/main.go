// Command record stands between Keep and a service of language models, and writes a cassette that
// llmtest replays. Secrets to scrub, besides the key and what looks like one, are the lines of the
// variable KEEP_SCRUB.
//
//	go run ./internal/llmtest/record -service https://api.anthropic.com -to cassette.json
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/keep-run/keep/internal/llmtest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run() error {
	service := flag.String("service", "", "address of the service, without a path")
	file := flag.String("to", "", "file of the cassette")
	listen := flag.String("listen", "127.0.0.1:7766", "address to listen on")
	flag.Parse()
	if *service == "" || *file == "" {
		return errors.New("-service and -to are needed")
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "Say base_url = \"http://%s\" in keep.toml (with openai, and the path of its API behind it); it ends with an interrupt.\n", l.Addr())
	s := &http.Server{Handler: llmtest.NewRecorder(*service, *file, strings.Fields(os.Getenv("KEEP_SCRUB"))...), ReadHeaderTimeout: time.Minute}
	return s.Serve(l)
}
