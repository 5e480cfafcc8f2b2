package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// An island is a network namespace with two wires to the namespace of the test, one
// to the database and one to the service. Nothing else can be reached from it.
//
// Who holds it open is a process that reads its stdin, and all else in it dies with
// the test. So when the test ends, even by SIGKILL, the kernel takes everything away.
type island struct {
	t      testing.TB
	number int
	net    string // its namespace, as a file
	url    string // of the service
	ports  [2]string
}

// A wire is one of the two.
type wire int

const (
	toDatabase wire = iota
	toService
)

func (w wire) String() string { return [...]string{"db", "svc"}[w] }

// newIsland makes the island of that number, with both wires up.
func newIsland(t testing.TB, number int) *island {
	t.Helper()
	keeper := exec.Command("cat")
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := keeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = keeper.Wait()
	})
	pid := strconv.Itoa(keeper.Process.Pid)
	i := &island{t: t, number: number, net: "/proc/" + pid + "/ns/net"}
	for _, w := range []wire{toDatabase, toService} {
		ip(t, "link", "add", i.near(w), "address", i.mac(w, 1), "type", "veth", "peer", "name", w.String(), "address", i.mac(w, 2), "netns", pid)
		ip(t, "address", "add", i.address(w, 1)+"/24", "dev", i.near(w))
		ip(t, "link", "set", i.near(w), "up")
		ip(t, "-n", i.net, "address", "add", i.address(w, 2)+"/24", "dev", w.String())
		ip(t, "-n", i.net, "link", "set", w.String(), "up")
		i.pass(w, true, true)
	}
	ip(t, "-n", i.net, "link", "set", "lo", "up")
	ip(t, "-n", i.net, "route", "add", meeting+"/32", "via", i.address(toService, 1))
	return i
}

// near returns the name of the test's end of a wire.
func (i *island) near(w wire) string { return fmt.Sprintf("keep%d%s", i.number, w) }

// address returns the address of an end: 1 is the test's, 2 the island's.
func (i *island) address(w wire, end int) string {
	return fmt.Sprintf("10.%d.%d.%d", i.number+1, int(w), end)
}

func (i *island) mac(w wire, end int) string {
	return fmt.Sprintf("02:00:00:%02x:%02x:%02x", i.number+1, int(w), end)
}

// pass says whether packets pass that leave the island by a wire, and those that
// come. Where they do not they vanish, and nobody is told: each end knows by heart
// which hardware has the address of the other, and knows it wrong.
func (i *island) pass(w wire, leaving, coming bool) {
	i.t.Helper()
	right := func(ok bool, mac string) string {
		if ok {
			return mac
		}
		return "02:00:00:ff:ff:ff"
	}
	ip(i.t, "-n", i.net, "neigh", "replace", i.address(w, 1), "lladdr", right(leaving, i.mac(w, 1)), "dev", w.String(), "nud", "permanent")
	ip(i.t, "neigh", "replace", i.address(w, 2), "lladdr", right(coming, i.mac(w, 2)), "dev", i.near(w), "nud", "permanent")
}

// unplug takes the test's end of a wire down, or up again. Both ends see that.
func (i *island) unplug(w wire, down bool) {
	i.t.Helper()
	if down {
		ip(i.t, "link", "set", i.near(w), "down")
		return
	}
	ip(i.t, "link", "set", i.near(w), "up")
	i.pass(w, true, true) // what was known by heart went with the link
}

// meeting is the address of the service for all islands: what a call was sent to must be
// the same place on each host.
const meeting = "10.200.0.1"

// listenForAll listens where all islands find the service.
func listenForAll(t testing.TB) net.Listener {
	t.Helper()
	ip(t, "address", "add", meeting+"/32", "dev", "lo")
	ln, err := net.Listen("tcp", meeting+":0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// database returns where the database is for who is on the island.
func (i *island) database() string {
	return net.JoinHostPort(i.address(toDatabase, 1), i.ports[toDatabase])
}

// service returns where the service is for who is on the island.
func (i *island) service() string {
	return i.url
}

// command returns a command on the island.
func (i *island) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--net=" + i.net, program}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// ip runs the program of that name. A namespace, after -n, is the file of one.
func ip(t testing.TB, args ...string) {
	t.Helper()
	line := append([]string{"ip"}, args...)
	if args[0] == "-n" {
		line = append([]string{"nsenter", "--net=" + args[1], "ip"}, args[2:]...)
	}
	if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(line, " "), err, out)
	}
}

// inNamespace runs the test again, in a network namespace of its own, and reports
// false; there it reports true. It skips the test where that is not possible.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const inside = "KEEP_TEST_IN_NAMESPACE"
	if os.Getenv(inside) != "" {
		ip(t, "link", "set", "lo", "up")
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	for _, program := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s on this machine: install iproute2 and util-linux", program)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v", "-failover="+failoverFor.String(), fmt.Sprint("-failover-strict=", *failoverStrict))
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this machine allows no network namespaces")
	}
	if err != nil {
		t.Errorf("in a network namespace: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "_test.go:") && err == nil {
			t.Log(strings.TrimSpace(line))
		}
	}
	return false
}
