package scripttest

import (
	"encoding/xml"
	"io"
	"strconv"
	"strings"
	"time"
)

// A Suite is what became of the tests of one file.
type Suite struct {
	File     string
	Verdicts []Verdict
}

// WriteJUnit writes the suites in the XML that JUnit made common: a testcase for each
// test, with a failure if it has problems.
func WriteJUnit(w io.Writer, suites []Suite) error {
	type failure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	type testcase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		Seconds string   `xml:"time,attr"`
		Failure *failure `xml:"failure,omitempty"`
	}
	type testsuite struct {
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Cases    []testcase `xml:"testcase"`
	}
	report := struct {
		XMLName xml.Name    `xml:"testsuites"`
		Suites  []testsuite `xml:"testsuite"`
	}{}
	for _, s := range suites {
		suite := testsuite{Name: s.File, Tests: len(s.Verdicts)}
		for _, v := range s.Verdicts {
			c := testcase{Name: v.Name, Class: s.File, Seconds: strconv.FormatFloat(v.Took.Round(time.Millisecond).Seconds(), 'f', 3, 64)}
			if len(v.Problems) > 0 {
				suite.Failures++
				c.Failure = &failure{Message: v.Problems[0], Text: strings.Join(v.Problems, "\n")}
			}
			suite.Cases = append(suite.Cases, c)
		}
		report.Suites = append(report.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(report); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
