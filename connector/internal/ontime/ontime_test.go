package ontime

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(time.Second)
		for name, tt := range map[string]struct {
			clock func() time.Time
			want  error
		}{
			"in time":                            {time.Now, nil},
			"late":                               {func() time.Time { return end }, ErrLate},
			"late by the wall clock after sleep": {func() time.Time { return time.Now().Round(0).Add(time.Hour) }, ErrLate},
		} {
			here, there := net.Pipe()
			go io.Copy(io.Discard, there)
			c := &conn{Conn: here, end: end, clock: tt.clock}
			if n, err := c.Write([]byte("x")); !errors.Is(err, tt.want) || (n == 1) != (tt.want == nil) {
				t.Errorf("%s: Write = %d, %v", name, n, err)
			}
			here.Close()
			there.Close()
		}
	})
}

// The deadline comes with the context, even to a dial that is detached from it, as
// that of net/http is; a write that blocks ends then.
func TestDialContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	c, err := new(Dialer).DialContext(context.WithoutCancel(WithEnd(ctx)), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for err == nil { // nobody reads
		_, err = c.Write(make([]byte, 1<<20))
	}
	var timeout net.Error
	if !errors.Is(err, ErrLate) && !(errors.As(err, &timeout) && timeout.Timeout()) {
		t.Errorf("Write = %v", err)
	}
	<-ctx.Done()
	if _, err := c.Write([]byte("x")); !errors.Is(err, ErrLate) {
		t.Errorf("Write after the end = %v, want %v", err, ErrLate)
	}
}
