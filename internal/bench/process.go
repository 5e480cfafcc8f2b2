package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// errNoPostgres is returned by hosts where it cannot start a server.
var errNoPostgres = errors.New("-hosts needs the programs of a Postgres server")

// A process is a member, or a side, that runs in a process of its own.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
}

// startProcess starts this program again as what a flag and its JSON say.
func startProcess(ctx context.Context, flag string, spec any) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self, flag, string(text))}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.answers = json.NewDecoder(out)
	return p, p.cmd.Start()
}

// ask sends a command and returns the answer.
func (p *process) ask(command string) (s standing, err error) {
	if _, err := io.WriteString(p.in, command+"\n"); err != nil {
		return s, fmt.Errorf("%s: the host is gone: %w", command, err)
	}
	if err := p.answers.Decode(&s); err != nil {
		return s, fmt.Errorf("%s: the host is gone: %w", command, err)
	}
	if s.Error != "" {
		return s, fmt.Errorf("%s: %s", command, s.Error)
	}
	return s, nil
}

// stop ends the process in order.
func (p *process) stop() error {
	p.in.Close()
	return p.cmd.Wait()
}

// kill ends it at once.
func (p *process) kill() {
	p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// A crew is the hosts that work on one database.
type crew []*process

// startCrew starts n hosts.
func startCrew(ctx context.Context, n int, spec memberSpec) (c crew, err error) {
	for i := range n {
		one := spec
		if one.Profile != "" {
			one.Profile = fmt.Sprint(one.Profile, ".", i)
		}
		p, err := startProcess(ctx, "-member", one)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c = append(c, p)
	}
	return c, nil
}

// ask asks all of them, and adds the answers up.
func (c crew) ask(command string) (sum standing, err error) {
	for _, p := range c {
		s, err := p.ask(command)
		if err != nil {
			return sum, err
		}
		sum.Runs, sum.Commits = sum.Runs+s.Runs, sum.Commits+s.Commits
		sum.CPU, sum.Log, sum.RSS = sum.CPU+s.CPU, sum.Log+s.Log, sum.RSS+s.RSS
		sum.Took = append(sum.Took, s.Took...)
		if s.Last.After(sum.Last) {
			sum.Last = s.Last
		}
	}
	return sum, nil
}

func (c crew) stop() error {
	var errs []error
	for _, p := range c {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// until asks every few milliseconds whether something is so, and gives up when
// ctx ends.
func until(ctx context.Context, what string, is func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := is(); err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
