package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/law/policy"
)

// page is a tool that returns 2 KB of a list, as services write them.
type page struct{}

func (page) Spec() connector.Spec { return connector.Spec{Name: "show", Effect: connector.Get} }
func (page) Read(_ context.Context, params json.RawMessage) (json.RawMessage, error) {
	var b strings.Builder
	for i := 0; b.Len() < 2000; i++ {
		fmt.Fprintf(&b, `,{"row":%d,"of":%s,"status":"open","amount":%d.%02d,"customer":"c-%d@example.com"}`, i, params, 7919*i%10_000, i%100, 104_729*i%1_000_003)
	}
	return json.RawMessage("[" + b.String()[1:] + "]"), nil
}

// reads compares hosts that record what runs see with hosts that do not, for runs that read and for
// those that read nothing.
func reads(ctx context.Context, dir string, s size, out io.Writer) error {
	if err := recording(ctx, filepath.Join(dir, "reads"), s, "2 KB of reads each", "await ctx.svc.show({ id: trigger.messageId });\n", out); err != nil {
		return err
	}
	return recording(ctx, filepath.Join(dir, "none"), s, "no reads", "", out)
}

// A sideSpec says which host a process of -reads is.
type sideSpec struct {
	Dir    string
	Read   string // what prepare does first
	Record bool   // what runs see
	Runs   int    // of each workflow, in a turn
}

// sideWorkflows is how many workflows a side has.
const sideWorkflows = 64

// recording compares a host that records with one that does not, in turns of the order ABBA. Each is a
// process with a file of its own, which rests while the other has its turn: the connections of one process
// share the pages that SQLite keeps, and two hosts in it would take them from each other. Turns are short,
// for the machine's speed changes from one second to the next. read is what prepare does first, and what
// says it in words.
func recording(ctx context.Context, dir string, s size, what, read string, out io.Writer) error {
	per := max(1, s.turn/sideWorkflows/16)
	var turns [2]turn
	var files [2]string
	var sides crew
	for i := range turns {
		spec := sideSpec{Dir: fmt.Sprint(dir, i), Read: read, Record: i == 1, Runs: per}
		p, err := startProcess(ctx, "-side", spec)
		if err != nil {
			return err
		}
		sides = append(sides, p)
		files[i] = filepath.Join(spec.Dir, "keep.db")
		turns[i] = func(context.Context) (wall, cpu time.Duration, err error) {
			took, err := p.ask("turn")
			return took.Wall, took.CPU, err
		}
		for range 4 { // until what SQLite and the sandbox keep is there
			if _, _, err := turns[i](ctx); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(out, "what recording costs: consumer runs of %d workflows with %s, synchronous=FULL, in turns of %d runs\n", sideWorkflows, what, per*sideWorkflows)
	pairs := 32 * s.turns
	if _, err := inTurns(ctx, [2]string{"off", "on"}, per*sideWorkflows, turns, pairs, out); err != nil {
		return err
	}
	if err := sides.stop(); err != nil {
		return err
	}
	return stored(files, (4+pairs)*per*sideWorkflows, out)
}

// side is a host of -reads: a process that has a turn for each line of in, and answers it on out. It
// ends with in.
func side(ctx context.Context, as string, in io.Reader, out io.Writer) error {
	var spec sideSpec
	if err := json.Unmarshal([]byte(as), &spec); err != nil {
		return fmt.Errorf("-side: %w", err)
	}
	p := policy.Default()
	if !spec.Record {
		p.Limits.Trace = 0
	}
	b := &bench{dir: spec.Dir, last: make(map[keep.WorkflowName]time.Time), policy: &p,
		connection: &connector.Connection{Name: "svc", Connector: "fake", Tools: []connector.Tool{instant{}, page{}}}}
	if err := b.openReaders(ctx, sideWorkflows, spec.Read); err != nil {
		return err
	}
	answer := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var took standing
		err := b.seed(ctx, "in", spec.Runs)
		if err == nil {
			took.Wall, took.CPU, err = b.drain(ctx)
		}
		if err != nil {
			took.Error = err.Error()
		}
		if err := answer.Encode(took); err != nil {
			break
		}
	}
	return b.close()
}

// openReaders opens the host, and deploys workflows whose prepare begins with read.
func (b *bench) openReaders(ctx context.Context, workflows int, read string) error {
	if err := b.open(ctx); err != nil {
		return err
	}
	for n := range workflows {
		name := fmt.Sprintf("w%03d", n)
		script := strings.Replace(fmt.Sprintf(consumer, name), "return {\n", read+"        return {\n", 1)
		if err := b.deploy(ctx, name, script); err != nil {
			return err
		}
	}
	return nil
}

// A turn runs some work, and returns the time that passed and the processor time.
type turn func(ctx context.Context) (wall, cpu time.Duration, err error)

// A ratio is what the second of two sides has of the first.
type ratio struct{ rate, cpu float64 }

// inTurns compares two sides in pairs of turns, each of that many runs, in the order ABBA. It prints
// each pair and the geometric means, and returns these.
func inTurns(ctx context.Context, names [2]string, runs int, sides [2]turn, pairs int, out io.Writer) (ratio, error) {
	fmt.Fprintf(out, "  %12s %12s %9s | %12s %12s %9s\n", names[0]+", runs/s", names[1]+", runs/s", "ratio", names[0]+", CPU/run", names[1]+", CPU/run", "ratio")
	var rates, cpus []float64
	for pair := range pairs {
		var rate, cpu [2]float64
		for n := range 2 {
			i := (n + pair) % 2
			wall, used, err := sides[i](ctx)
			if err != nil {
				return ratio{}, err
			}
			rate[i], cpu[i] = float64(runs)/wall.Seconds(), used.Seconds()/float64(runs)*1e6
		}
		rates, cpus = append(rates, rate[1]/rate[0]), append(cpus, cpu[1]/cpu[0])
		fmt.Fprintf(out, "  %12.0f %12.0f %8.3fx | %10.0fµs %10.0fµs %8.3fx\n", rate[0], rate[1], rate[1]/rate[0], cpu[0], cpu[1], cpu[1]/cpu[0])
	}
	r := ratio{mean(rates), mean(cpus)}
	_, err := fmt.Fprintf(out, "  geometric means of %d pairs: %.3fx runs/s ±%.3f, %.3fx CPU/run ±%.3f\n", pairs, r.rate, spread(rates), r.cpu, spread(cpus))
	return r, err
}

// turn opens the host, lets it load its scripts with a few runs, measures n runs of each
// workflow, and closes it. beside, if not nil, works meanwhile until its context ends.
func (b *bench) turn(ctx context.Context, n int, beside func(context.Context)) (wall, cpu time.Duration, err error) {
	if err := b.open(ctx); err != nil {
		return 0, 0, err
	}
	if err := b.seed(ctx, "in", 8); err != nil {
		return 0, 0, err
	}
	if _, _, err := b.drain(ctx); err != nil {
		return 0, 0, err
	}
	if err := b.seed(ctx, "in", n); err != nil {
		return 0, 0, err
	}
	var wg sync.WaitGroup
	while, stop := context.WithCancel(ctx)
	if beside != nil {
		wg.Go(func() { beside(while) })
	}
	wall, cpu, err = b.drain(ctx)
	stop()
	wg.Wait()
	if err != nil {
		return 0, 0, err
	}
	return wall, cpu, b.close()
}

// mean returns the geometric mean of ratios: the second of two turns is often slower, and each
// side is the second one as often as the other.
func mean(ratios []float64) float64 {
	var sum float64
	for _, r := range ratios {
		sum += math.Log(r)
	}
	return math.Exp(sum / float64(len(ratios)))
}

// spread returns the standard error of the mean of ratios, as a part of it.
func spread(ratios []float64) float64 {
	m, sum := math.Log(mean(ratios)), 0.0
	for _, r := range ratios {
		sum += math.Pow(math.Log(r)-m, 2)
	}
	n := float64(len(ratios))
	return math.Sqrt(sum / n / max(1, n-1))
}

// stored prints what files have grown to by so many runs each.
func stored(files [2]string, runs int, out io.Writer) error {
	var sizes [2]int64
	for i, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		sizes[i] = info.Size() / int64(runs)
	}
	_, err := fmt.Fprintf(out, "  file: %d bytes a run without, %d with: %d for what it saw\n\n", sizes[0], sizes[1], sizes[1]-sizes[0])
	return err
}
