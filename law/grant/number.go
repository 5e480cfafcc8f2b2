package grant

import (
	"fmt"

	"cel.dev/cel-go/cel"
)

// A Number is an expression over params that is a number. It has the bounds of a Condition.
type Number struct{ of *Condition }

// CompileNumber reads an expression that is a number. What is refused can never be used, as by
// CompileCondition.
func CompileNumber(text string) (*Number, error) {
	of, err := compile(text, func(t *cel.Type) error {
		switch t.Kind() {
		case cel.IntKind, cel.UintKind, cel.DoubleKind, cel.DynKind:
			return nil
		}
		return fmt.Errorf("it is %s, and must be a number", typeName(t))
	})
	if err != nil {
		return nil, err
	}
	return &Number{of}, nil
}

// Eval returns the number for params, a JSON object: an int64, uint64 or float64. An error says
// why there is none: a param is missing, or it is no number.
func (n *Number) Eval(params []byte) (any, error) {
	values, err := decode(params)
	if err != nil {
		return nil, fmt.Errorf("its params cannot be read: %w", err)
	}
	out, err := n.of.value(values)
	if err != nil {
		return nil, err
	}
	switch v := out.Value().(type) {
	case int64, uint64, float64:
		return v, nil
	}
	return nil, fmt.Errorf("it is %s, and must be a number: %s", out.Type().TypeName(), n.of.mentioned(values))
}
