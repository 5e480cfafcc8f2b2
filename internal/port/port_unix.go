//go:build unix

package port

import (
	"fmt"
	"syscall"
)

// held has the socket that holds the port: it is bound, and does not listen.
type held struct {
	fd   int
	addr string
}

func hold() (held, error) {
	syscall.ForkLock.RLock() // a process that is started now does not hold it, too
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return held{}, err
	}
	addr, err := bind(fd)
	if err != nil {
		syscall.Close(fd)
		return held{}, err
	}
	return held{fd, addr}, nil
}

func bind(fd int) (addr string, err error) {
	// As listeners have: one of them gets the port then, and who asks for any free port does not.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return "", err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port), nil
}

func (h held) release() { syscall.Close(h.fd) }
