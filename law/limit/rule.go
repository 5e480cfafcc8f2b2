package limit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Rate is how many requests may begin in a time.
type Rate struct {
	N   int
	Per time.Duration // a second, a minute or an hour
}

// units are what a rate may count by, by the names that configuration uses.
var units = []struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"min", time.Minute}, {"h", time.Hour}}

// String writes the rate as configuration does: "60/min".
func (r Rate) String() string {
	for _, u := range units {
		if u.per == r.Per {
			return strconv.Itoa(r.N) + "/" + u.name
		}
	}
	return fmt.Sprintf("%d/%s", r.N, r.Per)
}

// every is the time between two requests at that rate.
func (r Rate) every() time.Duration { return r.Per / time.Duration(r.N) }

// maxPer bounds the N of a rate: more requests than a millisecond each are not counted one
// by one.
const maxPer = 1_000_000

// ParseRates reads "60/min", or several with commas between: "2/s, 60/min". All of them
// hold.
func ParseRates(text string) ([]Rate, error) {
	var rates []Rate
	for part := range strings.SplitSeq(text, ",") {
		count, unit, _ := strings.Cut(strings.TrimSpace(part), "/")
		n, err := strconv.Atoi(count)
		i := slices.IndexFunc(units, func(u struct {
			name string
			per  time.Duration
		}) bool {
			return u.name == unit
		})
		if err != nil || i < 0 || n < 1 || n > maxPer {
			return nil, fmt.Errorf("%q is not a rate such as \"10/s\", \"60/min\" or \"1000/h\"", strings.TrimSpace(part))
		}
		rates = append(rates, Rate{n, units[i].per})
	}
	return rates, nil
}

// A Rule is what configuration says of a connection. Its zero value limits nothing.
type Rule struct {
	Rates       []Rate
	Burst       int // requests that may begin at once after a pause; less than 1: one
	Concurrency int // calls that may be out at once; 0: any number
}

// IsZero reports whether the rule limits nothing.
func (r Rule) IsZero() bool { return len(r.Rates) == 0 && r.Concurrency == 0 }

// Validate reports the first number that makes no sense.
func (r Rule) Validate() error {
	switch {
	case r.Concurrency < 0:
		return fmt.Errorf("concurrency must not be negative: %d", r.Concurrency)
	case r.Burst < 0 || r.Burst > maxPer:
		return fmt.Errorf("burst must be from 1 to %d: %d", maxPer, r.Burst)
	case r.Burst > 0 && len(r.Rates) == 0:
		return fmt.Errorf("burst is for a connection with a rate")
	}
	for _, rate := range r.Rates {
		if rate.N < 1 || rate.Per <= 0 {
			return fmt.Errorf("rate must be positive: %s", rate)
		}
	}
	return nil
}

func (r Rule) burst() int { return max(r.Burst, 1) }

// String says the rule for people: "60/min, 4 at once"; empty: it limits nothing.
func (r Rule) String() string {
	var parts []string
	if text := r.Text(); text != "" {
		parts = append(parts, text)
	}
	if r.Burst > 1 {
		parts = append(parts, fmt.Sprintf("bursts of %d", r.Burst))
	}
	if r.Concurrency > 0 {
		parts = append(parts, fmt.Sprintf("%d at once", r.Concurrency))
	}
	return strings.Join(parts, ", ")
}

// Text writes the rates as configuration does; empty: there are none.
func (r Rule) Text() string {
	var rates []string
	for _, rate := range r.Rates {
		rates = append(rates, rate.String())
	}
	return strings.Join(rates, ", ")
}
