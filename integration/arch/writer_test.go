package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
)

// This file holds the rule that output has one writer: package cmd/rutter/output, which
// escapes what others chose.

// outputPackage is where all that people read is written.
const outputPackage = "cmd/rutter/output"

// rawCalls are the calls that write, or lead to a writer, past outputPackage. of is the
// folder in which they are looked for; "" is the whole product.
var rawCalls = []struct{ of, call, remedy string }{
	{"", "fmt.Print", "print by output.Printf to the command's writer"},
	{"", "fmt.Printf", "print by output.Printf to the command's writer"},
	{"", "fmt.Println", "print by output.Printf to the command's writer"},
	{"", "os.Stdout", "write to the command's App.Writer"},
	{"", "os.Stderr", "write to the command's App.ErrWriter"},
	{"", "slog.NewTextHandler", "make a daemon's logger by term.NewLogger"},
	{"", "slog.NewJSONHandler", "make a daemon's logger by term.NewLogger"},
	{"cmd/rutter", "fmt.Fprint", "print by output.Print"},
	{"cmd/rutter", "fmt.Fprintf", "print by output.Printf"},
	{"cmd/rutter", "fmt.Fprintln", "print by output.Print or output.Printf"},
	{"cmd/rutter", "io.WriteString", "print by output.Print or output.Printf"},
	{"cmd/rutter", "io.Copy", "print by output.Lines or output.Printf"},
	{"cmd/rutter", "json.NewEncoder", "print by output.JSON or output.Indented"},
	{"cmd/rutter", "tabwriter.NewWriter", "make a table by output.Table or output.Aligned"},
	{"cmd/rutter", "output.Escaped", "print by output.Printf: only these callers escape by themselves"},
	{"cmd/rutter", "output.Binary", "print by output.Printf: only archives are binary"},
	{"cmd/rutter", ".Write", "print by output.Printf, or output.JSON"},
	{"cmd/rutter", ".WriteString", "print by output.Printf, or output.JSON"},
	{"cmd/rutter", ".Under", "write to the screen, not to what is below it"},
}

// rawAllowed are the calls that may stand in a file, each with its reason.
var rawAllowed = map[string]map[string]string{
	"cmd/rutter/main.go":                    {"os.Stdout": "makes the screens", "os.Stderr": "makes the screens", "slog.NewTextHandler": "the logger of libraries, on the screen"},
	"cmd/rutter/term/daemon.go":             {"slog.NewTextHandler": "the logger of daemons, on the screen", "slog.NewJSONHandler": "the same as JSON, for programs"},
	"cmd/rutter/term/term.go":               {".Under": "looks whether it is a terminal"},
	"cmd/rutter/term/stream.go":             {"io.Copy": "reads input"},
	"cmd/rutter/netlab/enter.go":            {"os.Stdout": "given to this program in a namespace", "os.Stderr": "given to this program in a namespace"},
	"cmd/rutter/localhttp/protect.go":       {"json.NewEncoder": "answers HTTP"},
	"cmd/rutter/node/status.go":             {"json.NewEncoder": "answers HTTP"},
	"cmd/rutter/node/support.go":            {"json.NewEncoder": "a part of a support bundle, which removes what is secret"},
	"cmd/rutter/serve/support.go":           {".Write": "a part of a support bundle"},
	"cmd/rutter/debugsocket/server.go":      {".Write": "answers at a Unix socket"},
	"cmd/rutter/supportcmd/file.go":         {".Write": "to an archive"},
	"cmd/rutter/node/forward.go":            {"json.NewEncoder": "answers HTTP", ".Write": "answers HTTP, as a server did"},
	"cmd/rutter/varpdcmd/varpd.go":          {"json.NewEncoder": "answers HTTP"},
	"cmd/rutter/backup/job.go":              {"json.NewEncoder": "to the server that started the process"},
	"cmd/rutter/backup/launcher.go":         {"fmt.Fprintf": "the log of a process of the server, one line", "os.Stderr": "the log of a process of the server"},
	"cmd/rutter/backup/schedule.go":         {".Write": "to a pipe, and to a file"},
	"cmd/rutter/sdnotify/socket.go":         {".Write": "to systemd, one line by line()"},
	"cmd/rutter/clustercmd/skip.go":         {".Write": "to a file"},
	"cmd/rutter/serve/gate.go":              {".Write": "to a connection"},
	"cmd/rutter/bench/agentsim/agent.go":    {".Write": "to a connection"},
	"cmd/rutter/bench/agentsim/scenario.go": {".Write": "a change, to a server"},
	"cmd/rutter/logcmd/bisect.go":           {".Write": "to the standard input of the user's command", "output.Escaped": "lines of package log/line"},
	"cmd/rutter/replayinto/ids.go":          {".Write": "to a file and a hash"},
	"cmd/rutter/replayinto/mapping.go":      {".Write": "to a file"},
	"cmd/rutter/bulkwrite/keys.go":          {".Write": "to a hash"},
	"cmd/rutter/logcmd/file.go":             {"output.Binary": "an archive"},
	"cmd/rutter/logcmd/cn.go":               {"output.Escaped": "lines of package log/line"},
	"cmd/rutter/logcmd/object.go":           {"output.Escaped": "lines of package log/line"},
	"cmd/rutter/logcmd/replay.go":           {"output.Escaped": "the dump quotes values"},
	"cmd/rutter/declarecmd/export.go":       {"output.Escaped": "documents quote values"},
	"scripts/release/main.go":               {"os.Stderr": "says why nothing was made; it builds packages, and links nothing of ours"},
	"cmd/rutter/logprint/print.go":          {"output.Escaped": "lines of package log/line"},
}

// literalTexts are the functions of outputPackage whose second argument is text of the
// program, so that no text of others is taken for a format or a line.
var literalTexts = []string{"Print", "Printf", "Lines"}

func checkOneWriter(files []*file) (bad []string) {
	unused := map[string]map[string]bool{}
	for _, f := range files {
		for call := range rawAllowed[f.path] {
			if unused[f.path] == nil {
				unused[f.path] = map[string]bool{}
			}
			unused[f.path][call] = true
		}
		if f.test || under(f.dir(), "integration") || f.dir() == outputPackage {
			continue
		}
		for name, spec := range f.imports {
			if name != "encoding/csv" {
				continue
			}
			bad = append(bad, f.at(spec.Pos())+": imports encoding/csv: a cell that begins with = + - @ is a formula; write CSV in "+outputPackage+", where such cells are quoted")
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, remedy := rawCall(f, n)
			switch {
			case call == "":
			case rawAllowed[f.path][call] != "":
				delete(unused[f.path], call)
			default:
				bad = append(bad, f.at(n.Pos())+": "+call+" goes past "+outputPackage+": "+remedy)
			}
			if text := notLiteral(f, n); text != "" {
				bad = append(bad, f.at(n.Pos())+": "+text)
			}
			return true
		})
	}
	for name, calls := range unused {
		for call := range calls {
			bad = append(bad, name+": has no "+call+" any more; remove it from rawAllowed")
		}
	}
	slices.Sort(bad)
	return bad
}

// rawCall returns which of rawCalls n is, or "".
func rawCall(f *file, n ast.Node) (call, remedy string) {
	if c, ok := n.(*ast.CallExpr); ok { // a method with one argument, whatever it is of
		if s, ok := c.Fun.(*ast.SelectorExpr); ok && (len(c.Args) == 1 || s.Sel.Name == "Under") {
			return rawNamed(f, "."+s.Sel.Name)
		}
		if id, ok := c.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
			return id.Name, "print by output.Printf to the command's writer"
		}
	}
	if s, ok := n.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok {
			return rawNamed(f, x.Name+"."+s.Sel.Name)
		}
	}
	return "", ""
}

func rawNamed(f *file, name string) (call, remedy string) {
	for _, raw := range rawCalls {
		if raw.call == name && (raw.of == "" || under(f.dir(), raw.of)) {
			return name, raw.remedy
		}
	}
	return "", ""
}

// notLiteral says what is wrong if n prints a text of the program that is no literal.
func notLiteral(f *file, n ast.Node) string {
	c, ok := n.(*ast.CallExpr)
	if !ok || len(c.Args) < 2 {
		return ""
	}
	s, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := s.X.(*ast.Ident); !ok || x.Name != "output" || !slices.Contains(literalTexts, s.Sel.Name) || literal(c.Args[1]) {
		return ""
	}
	return "the text of output." + s.Sel.Name + " is no literal: give it as an argument of output.Printf"
}

// literal reports whether e is a string of the program's text.
func literal(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		_, err := strconv.Unquote(e.Value)
		return e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		return e.Op == token.ADD && literal(e.X) && literal(e.Y)
	}
	return false
}
