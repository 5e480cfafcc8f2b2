//go:build unix

package pgtest

import (
	"context"
	"errors"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// Freeze stops every process of the server, as on a machine that hangs: it is there, and answers
// nothing. It continues with thaw, which must be called before the server is stopped.
func (s *Server) Freeze(ctx context.Context) (thaw func(), err error) {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer conn.PgConn().Conn().Close() // what is frozen takes no farewell
	main := s.cmd.Process.Pid
	all := []int{main}
	thaw = sync.OnceFunc(func() {
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
		}
	})
	// The first process stops first, so that it makes no other meanwhile.
	if err := syscall.Kill(main, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, `SELECT pid FROM pg_stat_activity`)
	if err == nil {
		var others []int
		others, err = pgx.CollectRows(rows, pgx.RowTo[int])
		all = append(others, main)
	}
	for _, pid := range all {
		if stop := syscall.Kill(pid, syscall.SIGSTOP); stop != nil && !errors.Is(stop, syscall.ESRCH) {
			err = errors.Join(err, stop)
		}
	}
	if err != nil {
		thaw()
		return nil, err
	}
	return thaw, nil
}
