package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

var days = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]{1,6})d(.*)$`) })

// ParseDuration reads what time.ParseDuration reads, and whole days of 24 hours
// before it: "10s", "1m30s", "1d", "1d12h".
func ParseDuration(s string) (time.Duration, error) {
	var d time.Duration
	rest := s
	if m := days().FindStringSubmatch(s); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil || n > math.MaxInt64/int(24*time.Hour) {
			return 0, fmt.Errorf("%q is longer than a duration can be", s)
		}
		d, rest = time.Duration(n)*24*time.Hour, m[2]
		if rest == "" {
			return d, nil
		}
	}
	tail, err := time.ParseDuration(rest)
	// The sum overflows if it is smaller than its first part.
	if err != nil || tail < 0 || d+tail < d {
		return 0, fmt.Errorf("%q is not a duration such as \"10s\", \"5m\", \"1h\" or \"1d\"", s)
	}
	return d + tail, nil
}

// units of sizes, longest names first so that a suffix is found whole.
var units = []struct {
	name string
	size int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"kB", 1000}, {"MB", 1000_000}, {"GB", 1000_000_000}, {"B", 1},
}

// ParseSize reads a number of bytes with its unit: "64MiB", "256 KiB", "10kB",
// "512B".
func ParseSize(s string) (int, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.size || n*u.size > math.MaxInt {
			break
		}
		return int(n * u.size), nil
	}
	return 0, fmt.Errorf("%q is not a size such as \"64MiB\", \"256KiB\" or \"512B\"", s)
}
