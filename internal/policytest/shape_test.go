package policytest

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestExportedHaveComments holds to this: go doc says of everything that importers see
// what it is.
func TestExportedHaveComments(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || strings.HasPrefix(f.pkg, "examples/") || slices.Contains(strings.Split(f.pkg, "/"), "internal") {
			continue
		}
		for _, name := range uncommented(f) {
			t.Errorf("%s: has no comment", name)
		}
	}
}

// uncommented returns the places and names of what a file exports without a comment.
func uncommented(f sourceFile) (names []string) {
	add := func(id *ast.Ident, comments ...*ast.CommentGroup) {
		if id.IsExported() && !slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return c != nil }) {
			names = append(names, f.at(id)+": "+id.Name)
		}
	}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || receiver(d).IsExported() {
				add(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s.Name, s.Doc, s.Comment, d.Doc)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						add(id, s.Doc, s.Comment, d.Doc)
					}
				}
			}
		}
	}
	return names
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) *ast.Ident {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x
		default:
			return ast.NewIdent("_")
		}
	}
}

// TestFunctionsAreShort watches the longest function of a hundred, and the longest of all:
// what is hard to hold in the head is long.
func TestFunctionsAreShort(t *testing.T) {
	const (
		most    = 50 // lines of 99 in a hundred
		longest = 65 // lines of any: a switch over all changes or kinds of rows has one case for each
	)
	var lengths []int
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
				if n > longest {
					t.Errorf("%s: %s has %d lines, more than %d; split it by idea", f.at(fn.Name), fn.Name.Name, n, longest)
				}
				lengths = append(lengths, n)
			}
		}
	}
	slices.Sort(lengths)
	p99 := lengths[len(lengths)*99/100]
	t.Logf("%d functions: half have %d lines or fewer, 99 of 100 %d, the longest %d", len(lengths), lengths[len(lengths)/2], p99, lengths[len(lengths)-1])
	if p99 >= most {
		t.Errorf("one function of a hundred has %d lines or more, want fewer than %d", p99, most)
	}
}

// TestInterfacesAreSmall holds to this: an interface of more than five methods, with those
// that it embeds, says in its comment why it has them.
func TestInterfacesAreSmall(t *testing.T) {
	all := interfaces(sources(t))
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range gen.Specs {
				spec, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				comment := gen.Doc.Text() + spec.Doc.Text()
				if n := all.methods(f.pkg, spec.Name.Name); n > 5 && !strings.Contains(comment, "because") {
					t.Errorf("%s: %s has %d methods; split it, or say in its comment why (\"because …\")", f.at(spec), spec.Name.Name, n)
				}
			}
		}
	}
}

// A declared interface is one of the module: its own methods, and the interfaces of the
// module that it embeds, as "package.Name".
type declared struct {
	methods  int
	embedded []string
}

// interfacesOf is the interfaces of the module by "package.Name".
type interfacesOf map[string]declared

// interfaces returns the interfaces that files declare.
func interfaces(files []sourceFile) interfacesOf {
	all := make(interfacesOf)
	for _, f := range files {
		if f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range gen.Specs {
				spec, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if iface, ok := spec.Type.(*ast.InterfaceType); ok {
					all[f.pkg+"."+spec.Name.Name] = declaration(f, iface)
				}
			}
		}
	}
	return all
}

// declaration returns an interface as a file declares it.
func declaration(f sourceFile, iface *ast.InterfaceType) (d declared) {
	for _, m := range iface.Methods.List {
		d.methods += len(m.Names)
		if len(m.Names) > 0 {
			continue
		}
		switch x := m.Type.(type) {
		case *ast.Ident:
			d.embedded = append(d.embedded, f.pkg+"."+x.Name)
		case *ast.SelectorExpr:
			if pkg, ok := x.X.(*ast.Ident); ok {
				d.embedded = append(d.embedded, f.imported(pkg.Name)+"."+x.Sel.Name)
			}
		}
	}
	return d
}

// imported returns the directory of the module's package that a file knows by a name.
func (f sourceFile) imported(name string) string {
	for _, spec := range f.syntax.Imports {
		dir, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
		if ours && (spec.Name != nil && spec.Name.Name == name || spec.Name == nil && path.Base(dir) == name) {
			return dir
		}
	}
	return "." // the root, or another module, whose interfaces are not known
}

// methods returns how many methods an interface has, with those that it embeds; 0 for other
// types.
func (all interfacesOf) methods(pkg, name string) int {
	d := all[pkg+"."+name]
	n := d.methods
	for _, e := range d.embedded {
		dot := strings.LastIndexByte(e, '.')
		n += all.methods(e[:dot], e[dot+1:])
	}
	return n
}

// The checks of shapes do find what they look for.
func TestShapesFind(t *testing.T) {
	f, err := parse("law/x/x.go", `package x
		func A() {}
		// B is.
		func B() {}
		type c struct{}
		func (c) D() {}
		type E interface{ F(); g() }
		const (
			H = 1 // it is
			I = 2
		)`)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(uncommented(f), " ")
	if want := "law/x/x.go:2: A law/x/x.go:7: E law/x/x.go:10: I"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
	other, err := parse("view/y.go", `package view
		import "github.com/keep-run/keep/law/x"
		type one interface{ H() }
		type Three interface{ x.E; one }`)
	if err != nil {
		t.Fatal(err)
	}
	if n := interfaces([]sourceFile{f, other}).methods("view", "Three"); n != 3 {
		t.Errorf("Three has %d methods, want 3 with those that it embeds", n)
	}
}
