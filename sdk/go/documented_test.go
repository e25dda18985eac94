package orbit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever reads go doc, or hovers over a name, finds what it means. The linter asks for types and functions only.
func TestEveryExportedNameIsDescribed(t *testing.T) {
	for _, folder := range []string{".", "orbittest", "orbitotel"} {
		files := token.NewFileSet()
		paths, err := filepath.Glob(folder + "/*.go")
		if err != nil || len(paths) == 0 {
			t.Fatalf("%v of %s, %v", paths, folder, err)
		}
		missing := func(name *ast.Ident, docs ...*ast.CommentGroup) {
			for _, doc := range docs {
				if doc != nil {
					return
				}
			}
			if name.IsExported() {
				t.Errorf("%s: %s has no comment", files.Position(name.Pos()), name.Name)
			}
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.FuncDecl:
					if node.Recv == nil || isExported(node.Recv.List[0].Type) {
						missing(node.Name, node.Doc)
					}
					return false
				case *ast.GenDecl:
					for _, spec := range node.Specs {
						switch spec := spec.(type) {
						case *ast.TypeSpec:
							missing(spec.Name, node.Doc, spec.Doc)
							if fields, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() {
								for _, field := range fields.Fields.List {
									for _, name := range field.Names {
										missing(name, field.Doc)
									}
								}
							}
						case *ast.ValueSpec:
							own := node.Doc
							if len(node.Specs) > 1 {
								own = nil // It is of all of them together.
							}
							for _, name := range spec.Names {
								missing(name, own, spec.Doc)
							}
						}
					}
					return false
				}
				return true
			})
		}
	}
}

// isExported tells whether a receiver's type is exported.
func isExported(receiver ast.Expr) bool {
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && name.IsExported()
}
