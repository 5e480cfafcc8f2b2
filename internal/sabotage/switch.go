package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// To compile the module anew for each break would take most of the time. A break that
// changes the body of one function needs no build of its own: the function as it is begins
// with a switch that leads to the function as the break has it. One build has the switches of
// all breaks, and a file says which of them is on.

// switchFile is the file that each package with switches gets.
const switchFile = "sabotage_switch.go"

// variable is the name of the switch of b, which is part of the name of its function, too.
func (b Break) variable() string { return "sabotage_" + strings.ReplaceAll(b.Name, "-", "_") }

// A function is one of a file, as it is written there.
type function struct {
	decl       *ast.FuncDecl
	head, body string // with the braces in body
	rest       string // of the file
}

// onlyChange returns the function of was that is is another in, if everything else is equal.
func onlyChange(file string, was, is []byte) (before, after *function) {
	w, i := functions(file, was), functions(file, is)
	for n := range min(len(w), len(i)) {
		if w[n].head == i[n].head && w[n].body != i[n].body && w[n].rest == i[n].rest {
			return &w[n], &i[n]
		}
	}
	return nil, nil
}

// functions returns those of a file in their order; none if it is no file in Go.
func functions(file string, text []byte) (list []function) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			from, body, to := at(d.Pos()), at(d.Body.Lbrace), at(d.End())
			list = append(list, function{d, string(text[from:body]), string(text[body:to]), string(text[:from]) + string(text[to:])})
		}
	}
	return list
}

// call returns a call of another function with the receiver and the parameters of f; false if
// one of them has no name.
func (f *function) call(name string) (string, bool) {
	var args []string
	for _, field := range f.decl.Type.Params.List {
		if len(field.Names) == 0 {
			return "", false
		}
		for _, n := range field.Names {
			arg := n.Name
			if _, more := field.Type.(*ast.Ellipsis); more {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	if slices.Contains(args, "_") {
		return "", false
	}
	if types := f.decl.Type.TypeParams; types != nil {
		var given []string
		for _, field := range types.List {
			for _, n := range field.Names {
				given = append(given, n.Name)
			}
		}
		name += "[" + strings.Join(given, ", ") + "]"
	}
	call := name + "(" + strings.Join(args, ", ") + ")"
	if f.decl.Recv == nil {
		return call, true
	}
	names := f.decl.Recv.List[0].Names
	if len(names) == 0 || names[0].Name == "_" {
		return "", false
	}
	return names[0].Name + "." + call, true
}

// named returns the head of f with another name.
func (f *function) named(name string) string {
	from := int(f.decl.Name.Pos() - f.decl.Pos())
	return f.head[:from] + name + f.head[from+len(f.decl.Name.Name):]
}

// A switched file has the switches of breaks in it.
type switched struct {
	text  []byte
	of    string // package
	on    []Break
	alone []Break // need a build of their own
}

// switchAll returns a file with switches for breaks of it. No line of it moves.
func switchAll(root, file string, breaks []Break) (switched, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return switched{}, err
	}
	var s switched
	switches := make(map[int]string) // by the offset in text where they stand
	var copies strings.Builder
	for _, b := range breaks {
		broken, err := b.patched(root)
		if err != nil {
			return switched{}, err
		}
		was, is := onlyChange(file, text, broken)
		if was == nil {
			s.alone = append(s.alone, b)
			continue
		}
		name := was.decl.Name.Name + "_" + b.variable()
		call, ok := was.call(name)
		if !ok {
			s.alone = append(s.alone, b)
			continue
		}
		if was.decl.Type.Results != nil {
			call = "return " + call
		} else {
			call += "; return"
		}
		switches[int(was.decl.Body.Lbrace)] += " if " + b.variable() + " { " + call + " };"
		fmt.Fprintf(&copies, "\n%s%s\n", is.named(name), is.body)
		s.on = append(s.on, b)
	}
	// A file that is parsed alone begins at position 1, so that the position of a brace is the
	// offset of what follows it.
	at := 0
	for _, next := range slices.Sorted(maps.Keys(switches)) {
		s.text = append(append(s.text, text[at:next]...), switches[next]...)
		at = next
	}
	s.text = append(append(s.text, text[at:]...), copies.String()...)
	f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.PackageClauseOnly)
	if err == nil {
		s.of = f.Name.Name
	}
	return s, nil
}

// declared returns the text of the file that has the switches of a package: a switch is on if
// its break is named in the file on.
func declared(pkg, on string, breaks []Break) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n\nimport sabotage_os \"os\"\n\nvar sabotage_on, _ = sabotage_os.ReadFile(%q)\n", pkg, on)
	for _, x := range breaks {
		fmt.Fprintf(&b, "\nvar %s = string(sabotage_on) == %q\n", x.variable(), x.Name)
	}
	return []byte(b.String())
}
