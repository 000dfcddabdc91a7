package declarecmd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/messages"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections/documents"
	"rutter/projections/documents/schema"
)

// ExplainCommand is rutter explain.
func ExplainCommand() *cli.Command {
	return &cli.Command{
		Name: "explain", Usage: "what the fields of each kind of object are, the JSON Schema of documents, and what a message of a log means", Category: "Objects",
		ArgsUsage: "[KIND[.FIELD] | MESSAGE]",
		Description: term.Examples(
			"rutter explain                            # the kinds",
			"rutter explain network                    # the fields of a kind",
			"rutter explain network.subnet             # one field",
			"rutter explain --schema > rutter.json     # the JSON Schema of documents, for editors",
			"rutter explain --schema network",
			"rutter explain RT012                      # what a warning of a log means, by its id",
		),
		Flags: []cli.Flag{
			output.Flag("table", "json"),
			&cli.BoolFlag{Name: "schema", Usage: "print the JSON Schema (2020-12) of documents: of any kind, or of KIND"},
		},
		Action: runExplain,
	}
}

func runExplain(c *cli.Context) error {
	if c.NArg() > 1 {
		return term.Usagef("want one argument, %s", c.Command.ArgsUsage)
	}
	word, field, hasField := strings.Cut(c.Args().First(), ".")
	if word == "" {
		if c.Bool("schema") {
			return output.Indented(c.App.Writer, schema.Documents())
		}
		return explainAll(c)
	}
	if strings.HasPrefix(word, "RT") {
		return explainMessage(c, word)
	}
	kind, err := kindCalled(word)
	if err != nil {
		return err
	}
	switch {
	case c.Bool("schema") && hasField:
		return term.Usagef("--schema is of a kind, not of a field: rutter explain --schema %s", word)
	case c.Bool("schema"):
		return printSchema(c, kind)
	case hasField:
		return explainField(c, kind, field)
	}
	return explainKind(c, kind)
}

// explainMessage prints what a warning or an error of a log means.
func explainMessage(c *cli.Context, id string) error {
	m, known := messages.ByID(id)
	switch {
	case !known:
		return term.Usagef("no message has the id %s; ids are in the attribute id of a line, as in RT012", id)
	case c.String("output") == "json":
		return output.JSON(c.App.Writer, m)
	}
	return output.Printf(c.App.Writer, "%s  %s\n\n%s\n", m.ID(), m.Text, m.Do)
}

// kindCalled finds a kind by its name, that of its command or its path.
func kindCalled(word string) (log.Kind, error) {
	var names []string
	for _, kind := range log.Kinds() {
		d := kind.Describe()
		if word == d.Name || word == d.Command.Name && word != "" || word == d.Path && word != "" {
			return kind, nil
		}
		names = append(names, d.Name)
	}
	if near := documents.Nearest(word, names); near != "" {
		return 0, term.Usagef("there is no kind %q; did you mean %s? rutter explain lists the kinds", word, near)
	}
	return 0, term.Usagef("there is no kind %q; rutter explain lists the kinds", word)
}

func printSchema(c *cli.Context, kind log.Kind) error {
	s := schema.Document(kind)
	if s == nil {
		_, why := documents.Declared(kind)
		return fmt.Errorf("documents do not declare a %s: %s", kind, why)
	}
	s["$schema"] = schema.Dialect
	return output.Indented(c.App.Writer, s)
}

// kindForm is what is said of a kind.
type kindForm struct {
	Kind     string      `json:"kind"`
	Noun     string      `json:"noun"`
	Declared bool        `json:"declared"`
	Why      string      `json:"why_not,omitempty"`
	Command  string      `json:"command,omitempty"`
	Path     string      `json:"path,omitempty"`
	Fields   []fieldForm `json:"fields,omitempty"`
}

// fieldForm is what is said of a field.
type fieldForm struct {
	Name      string   `json:"name"`               // JSON name
	Document  string   `json:"document,omitempty"` // where it stands in a document; "": nowhere
	Type      string   `json:"type"`
	Text      string   `json:"text"`
	Unit      string   `json:"unit,omitempty"`
	Default   string   `json:"default,omitempty"`
	Values    []string `json:"values,omitempty"`
	SetBy     string   `json:"set_by"`
	Refers    string   `json:"refers,omitempty"`
	Immutable bool     `json:"immutable,omitempty"`
	Required  bool     `json:"required,omitempty"`
	Since     uint32   `json:"since"` // the feature version
}

func formOf(kind log.Kind) kindForm {
	d := kind.Describe()
	declared, why := documents.Declared(kind)
	return kindForm{Kind: kind.String(), Noun: d.Noun, Declared: declared, Why: why, Command: d.Command.Name, Path: d.Path}
}

func fieldsOf(kind log.Kind) (all []fieldForm) {
	for _, doc := range log.FieldDocs(kind) {
		f := fieldForm{
			Name: doc.Name, Document: placeOf(kind, doc), Type: doc.Type.String(), Text: doc.Text, Unit: doc.Unit, Default: doc.Default,
			Values: doc.Values, SetBy: doc.By.String(), Immutable: doc.Immutable, Required: doc.Required, Since: doc.Since,
		}
		if doc.JSON {
			f.Type = "JSON"
		}
		if doc.Refers != 0 {
			f.Refers = doc.Refers.String()
		}
		all = append(all, f)
	}
	return all
}

// placeOf is where a field stands in documents, as in spec.network; "" if it is in none.
func placeOf(kind log.Kind, doc log.FieldDoc) string {
	declared, _ := documents.Declared(kind)
	switch {
	case !declared || doc.By != log.SetByPeople:
		return ""
	case doc.Name == documents.NameField(kind):
		return "name"
	case doc.Name == documents.UUIDField(kind):
		return "uuid"
	case doc.Name == "labels":
		return "labels"
	}
	var names []string
	for _, f := range documents.Fields(kind) {
		if f.FieldDoc.Name == doc.Name {
			names = append(names, "spec."+f.Name)
		}
	}
	return strings.Join(names, ", ")
}

func explainAll(c *cli.Context) error {
	var all []kindForm
	for _, kind := range log.Kinds() {
		all = append(all, formOf(kind))
	}
	return output.Table(c, all, func(w io.Writer) {
		output.Print(w, "KIND\tCOMMAND\tIN DOCUMENTS\n")
		for _, k := range all {
			command, in := "", "yes"
			if k.Command != "" {
				command = "rutter " + k.Command
			}
			if !k.Declared {
				in = "no: " + k.Why
			}
			output.Printf(w, "%s\t%s\t%s\n", k.Kind, command, in)
		}
	})
}

func explainKind(c *cli.Context, kind log.Kind) error {
	k := formOf(kind)
	k.Fields = fieldsOf(kind)
	return output.Table(c, k, func(w io.Writer) {
		output.Print(w, "FIELD\tTYPE\tIN DOCUMENTS\tWHAT IT IS\n")
		for _, f := range k.Fields {
			in := f.Document
			if in == "" {
				in = "-"
			}
			text := f.Text
			if f.Unit != "" {
				text += " Unit: " + f.Unit + "."
			}
			if f.Default != "" {
				text += " Default: " + f.Default + "."
			}
			output.Printf(w, "%s\t%s\t%s\t%s\n", f.Name, f.Type, in, text)
		}
	})
}

func explainField(c *cli.Context, kind log.Kind, name string) error {
	fields := fieldsOf(kind)
	i := slices.IndexFunc(fields, func(f fieldForm) bool {
		return f.Name == name || slices.Contains(strings.Split(f.Document, ", "), name) || slices.Contains(strings.Split(f.Document, ", "), "spec."+strings.TrimPrefix(name, "spec."))
	})
	if i < 0 {
		var names []string
		for _, f := range fields {
			names = append(names, f.Name)
		}
		if near := documents.Nearest(name, names); near != "" {
			return term.Usagef("a %s has no field %q; did you mean %s? rutter explain %s lists the fields", kind, name, near, kind)
		}
		return term.Usagef("a %s has no field %q; rutter explain %s lists the fields", kind, name, kind)
	}
	f := fields[i]
	return output.Table(c, f, func(w io.Writer) {
		in := f.Document
		if in == "" {
			in = "none"
		}
		for _, line := range []struct{ title, text string }{
			{"field", kind.String() + "." + f.Name},
			{"what it is", f.Text},
			{"type", f.Type + elements(f.Type)},
			{"unit", f.Unit},
			{"values", strings.Join(f.Values, ", ")},
			{"default", f.Default},
			{"names objects of", f.Refers},
			{"set by", f.SetBy},
			{"in documents", in},
			{"can be changed", changeable(f)},
			{"since feature version", fmt.Sprint(f.Since)},
		} {
			if line.text != "" {
				output.Printf(w, "%s:\t%s\n", line.title, line.text)
			}
		}
	})
}

// elements says what stands in a nested value.
func elements(of string) string {
	switch of {
	case log.TypeRoutes.String():
		return ": a map of destination (an address or a subnet) to gateway (an address, or linklocal)"
	case "JSON":
		return ": in documents maps, lists and plain values; in the log one text"
	}
	return ""
}

func changeable(f fieldForm) string {
	if f.Immutable {
		return "no; documents with another value replace the object"
	}
	return "yes"
}
