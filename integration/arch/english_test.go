package arch

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
)

// hardWords are words of comments that a reader whose first language is not
// English has to read twice, with what to write instead. Texts in strings are left
// out: some of them are what servers agree on.
var hardWords = regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|everybody|whoever|whomever|lest|hither|thereof|therein|wherein|but that|for ever|of its own accord)\b`)

// guessedNames are names that have to be guessed, with the field's term. They are
// looked for as whole names of files, types, functions and fields.
var guessedNames = map[string]string{
	"crew": "dispatcher", "sight": "visibility", "audience": "subscribers, recipients", "reign": "leader term",
	"office": "issuer, signing service", "desk": "issuer, handler", "book": "ledger, table", "care": "upkeep",
	"heard": "observed", "told": "reported, expected, sent", "crowd": "limit, clients",
}

// statedNames are in public interfaces, and stay.
var statedNames = map[string]bool{
	"api/client.Heard":         true, // of GET /cns/sessions
	"api/internal/nodes.Heard": true,
}

// checkHardWords looks at the comments of the product, of its tests and of the other
// integration packages. This package is exempt, because it has the words themselves.
func checkHardWords(files []*file) (bad []string) {
	for _, f := range files {
		if under(f.dir(), "integration/arch") {
			continue
		}
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				if found := hardWords.FindString(c.Text); found != "" {
					bad = append(bad, f.at(c.Pos())+": "+found+": name who it is (client, leader, caller, operator), or use the passive")
				}
			}
		}
	}
	return bad
}

// checkGuessedNames looks at the product only.
func checkGuessedNames(files []*file) (bad []string) {
	for _, f := range files {
		if f.test || under(f.dir(), "integration") {
			continue
		}
		base := strings.TrimSuffix(path.Base(f.path), ".go")
		if want := guessedNames[base]; want != "" {
			bad = append(bad, f.at(f.ast.Package)+": the file "+base+" has to be guessed: say what it is ("+want+")")
		}
		name := func(id *ast.Ident) {
			if want := guessedNames[strings.ToLower(id.Name)]; want != "" && !statedNames[f.dir()+"."+id.Name] {
				bad = append(bad, f.at(id.Pos())+": the name "+id.Name+" has to be guessed: say what it is ("+want+")")
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				name(n.Name)
			case *ast.FuncDecl:
				name(n.Name)
			case *ast.StructType:
				for _, field := range n.Fields.List {
					for _, id := range field.Names {
						name(id)
					}
				}
			}
			return true
		})
	}
	return bad
}
