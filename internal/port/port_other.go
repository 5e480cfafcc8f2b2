//go:build !unix

package port

import "net"

// held holds nothing: while nobody listens, another one may take the port.
type held struct{ addr string }

func hold() (held, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return held{}, err
	}
	defer ln.Close()
	return held{ln.Addr().String()}, nil
}

func (held) release() {}
