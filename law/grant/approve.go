package grant

import (
	"errors"
	"fmt"
)

// Approvals say when a person must agree before a call of a tool, whoever makes it. They may be used by
// several goroutines. Nil asks for none.
type Approvals struct{ list []approval }

type approval struct {
	text string
	when *Condition // nil: it cannot be used
}

// CompileApprovals returns what texts say, each of which is Always or a condition. The error joins why some
// cannot be used; these ask before each call.
func CompileApprovals(texts []string) (*Approvals, error) {
	var a *Approvals
	var errs []error
	for _, text := range texts {
		when, err := CompileCondition(approveText(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", text, err))
		}
		if a == nil {
			a = new(Approvals)
		}
		a.list = append(a.list, approval{text, when})
	}
	return a, errors.Join(errs...)
}

// Why returns why a person must agree to a call with params, a JSON object; empty: nobody must. What cannot be
// decided asks.
func (a *Approvals) Why(params []byte) string {
	if a == nil {
		return ""
	}
	values, err := decode(params)
	if err != nil {
		return "its connection asks for a person's approval, and its params cannot be read: " + err.Error()
	}
	for _, one := range a.list {
		if why := asks("its connection", one.text, one.when, values); why != "" {
			return why
		}
	}
	return ""
}

// asks returns why a condition of an approval asks for one; empty: it does not.
func asks(who, text string, when *Condition, values any) string {
	if text == Always {
		return who + " asks for a person's approval before each call"
	}
	switch yes, err := when.eval(values); {
	case err != nil:
		return fmt.Sprintf("%s asks for a person's approval if %q, and whether that holds is not known: %v", who, text, err)
	case yes:
		return fmt.Sprintf("%s asks for a person's approval if %q", who, text)
	}
	return ""
}
