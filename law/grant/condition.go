package grant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/checker"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types/ref"
)

// What bounds a condition (law: bounded).
const (
	// MaxCondition is its length, in characters.
	MaxCondition = 2000

	// MaxConditions is the length of all conditions of a grant: to compile 2,000
	// characters takes up to a quarter of a second.
	MaxConditions = 30_000

	// MaxCost is what it may cost: about a tenth of a comparison each.
	MaxCost = 100_000

	maxDepth  = 40  // of its brackets
	assumed   = 100 // elements of a list, and characters of a text, when its cost is estimated
	maxShown  = 60  // characters of a value in a reason
	maxParams = 5   // values in a reason
)

// A Condition is an expression over params that is true or false.
type Condition struct {
	text    string
	program cel.Program
	params  []string // names of params that it mentions, sorted
}

// environment returns what conditions may use: params, and the standard functions.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewCustomEnv(
		cel.StdLib(),
		cel.Variable("params", cel.MapType(cel.StringType, cel.DynType)),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(MaxCondition),
		cel.ParserRecursionLimit(maxDepth),
	)
})

// CompileCondition reads a condition. What is refused can never be used: it is no
// expression, it names something other than params, it is not true or false, or it would
// cost too much with lists of 100 elements.
func CompileCondition(text string) (*Condition, error) {
	if c, ok := compiled.get(text); ok {
		return c, nil
	}
	c, err := compile(text, func(t *cel.Type) error {
		if !t.IsExactType(cel.BoolType) {
			return fmt.Errorf("it is %s, and must be true or false: compare it with something", typeName(t))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	compiled.put(text, c)
	return c, nil
}

// compiled are conditions that were compiled lately: workflows read their grants whenever somebody
// changes them, and few texts are new.
var compiled conditions

// maxCompiled is how many of them are kept.
const maxCompiled = 64

// conditions are compiled conditions by their text. When there are too many it forgets all.
type conditions struct {
	mu sync.Mutex // protects m
	m  map[string]*Condition
}

func (c *conditions) get(text string) (*Condition, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.m[text]
	return found, ok
}

func (c *conditions) put(text string, v *Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) == maxCompiled {
		c.m = make(map[string]*Condition)
	}
	c.m[text] = v
}

// compile reads an expression of a type that fits.
func compile(text string, fits func(*cel.Type) error) (*Condition, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	if len(text) > MaxCondition {
		return nil, fmt.Errorf("%d bytes: at most %d", len(text), MaxCondition)
	}
	checked, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, errors.New(firstIssue(issues))
	}
	if err := fits(checked.OutputType()); err != nil {
		return nil, err
	}
	cost, err := env.EstimateCost(checked, sizes{})
	if err != nil {
		return nil, err
	}
	if cost.Max > MaxCost {
		return nil, errors.New("it costs too much: it goes through lists within lists")
	}
	program, err := env.Program(checked, cel.CostLimit(MaxCost))
	if err != nil {
		return nil, err
	}
	return &Condition{text: text, program: program, params: mentions(checked)}, nil
}

// firstIssue returns what is wrong first, with its place.
func firstIssue(issues *cel.Issues) string {
	list := issues.Errors()
	if len(list) == 0 {
		return strings.ReplaceAll(issues.Err().Error(), "\n", " ")
	}
	e := list[0]
	message, _, _ := strings.Cut(e.Message, "\n")
	return fmt.Sprintf("at character %d: %s", e.Location.Column()+1, message)
}

// typeName says what an expression is, if it is not true or false.
func typeName(t *cel.Type) string {
	if t.Kind() == cel.DynKind {
		return "whatever the param is"
	}
	return "of type " + t.String()
}

// sizes assumes how long the lists and texts of params are.
type sizes struct{}

// EstimateSize implements checker.CostEstimator.
func (sizes) EstimateSize(checker.AstNode) *checker.SizeEstimate {
	return &checker.SizeEstimate{Min: 0, Max: assumed}
}

// EstimateCallCost implements checker.CostEstimator.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// mentions returns the names of the params that an expression reads.
func mentions(checked *cel.Ast) []string {
	var names []string
	visitor := ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.SelectKind {
			return
		}
		if of := e.AsSelect().Operand(); of.Kind() == ast.IdentKind && of.AsIdent() == "params" {
			names = append(names, e.AsSelect().FieldName())
		}
	})
	ast.PreOrderVisit(checked.NativeRep().Expr(), visitor)
	slices.Sort(names)
	return slices.Compact(names)
}

// eval returns whether the condition is true. An error means that it is neither.
func (c *Condition) eval(values any) (ok bool, err error) {
	if c == nil {
		return false, errors.New("it cannot be used")
	}
	out, err := c.value(values)
	if err != nil {
		return false, err
	}
	ok, is := out.Value().(bool)
	if !is {
		return false, fmt.Errorf("it is %v, which is not true or false", out.Type())
	}
	return ok, nil
}

// value returns what the expression is with these params.
func (c *Condition) value(values any) (out ref.Val, err error) {
	defer func() {
		if p := recover(); p != nil { // a bug of the language's: it is no value
			out, err = nil, fmt.Errorf("it could not be evaluated: %v", p)
		}
	}()
	out, _, err = c.program.Eval(map[string]any{"params": values})
	if err != nil {
		return nil, reason(err)
	}
	return out, nil
}

// reason returns an error of an evaluation in words for people.
func reason(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "actual cost limit exceeded"):
		return errors.New("it costs too much with these params")
	case strings.HasPrefix(text, "no such key: "):
		return fmt.Errorf("there is no param %s", strings.TrimPrefix(text, "no such key: "))
	case strings.Contains(text, "no such overload"):
		return errors.New("a param has another type than it is compared with")
	}
	return errors.New(cut(text, 200))
}

// mentioned returns the values of the params that the condition reads, for people.
func (c *Condition) mentioned(values any) string {
	params, _ := values.(map[string]any)
	var parts []string
	for _, name := range c.params {
		if len(parts) == maxParams {
			parts = append(parts, "and more")
			break
		}
		if v, there := params[name]; there {
			text, _ := json.Marshal(v)
			parts = append(parts, fmt.Sprintf("params.%s = %s", name, cut(string(text), maxShown)))
		}
	}
	if len(parts) == 0 {
		return "these params"
	}
	return strings.Join(parts, ", ")
}

// cut returns at most n characters of s.
func cut(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i] + "…"
		}
		n--
	}
	return s
}

// decode returns params as conditions see them: whole numbers are integers.
func decode(params []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(params))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, errors.New("there is more than one object")
	}
	if v == nil {
		return nil, errors.New("they are no object")
	}
	return numbers(v)
}

// numbers replaces each number by an integer or a double.
func numbers(v any) (any, error) {
	var err error
	switch t := v.(type) {
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return n, nil
		}
		return t.Float64()
	case []any:
		for i := range t {
			if t[i], err = numbers(t[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range t {
			if t[k], err = numbers(t[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
