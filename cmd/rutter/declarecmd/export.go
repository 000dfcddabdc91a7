package declarecmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/documents"
	"rutter/projections/documents/source"
)

// StateAt reads the state that the flags --server, --data and --at name.
type StateAt func(c *cli.Context) (*projections.State, log.Seq, error)

// ExportCommand is rutter export.
func ExportCommand(read StateAt) *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "write what there is as documents, for rutter plan and rutter apply", Category: "Objects",
		Description: term.Examples(
			"rutter export                                   # all that people declare, on standard output",
			"rutter export -f cloud/                         # a file for each kind, in a folder",
			"rutter export --kind network --kind nic -o json",
			"rutter export --label set=web -f web.yaml",
			"rutter export --at 1042                         # as it was after entry 1042",
		) + "\n\nNames stand for UUIDs where only one object has the name. What compute nodes report and what follows from other objects is left out, and so are customer_metadata and internal_metadata of VMs, which may hold secrets. The same state gives the same bytes. `rutter explain` has the kinds and their fields.",
		Flags: append([]cli.Flag{
			term.ServersFlag(), term.DataFlag(), output.Flag("yaml", "json"),
			&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "write to `FILE|FOLDER` instead of standard output; a folder gets a file for each kind"},
			&cli.StringFlag{Name: "at", Usage: "after the entry `SEQ|TIME`; the head if it is left out"},
		}, selectionFlags()...),
		Action: func(c *cli.Context) error { return runExport(c, read) },
	}
}

// selectionFlags select objects.
func selectionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "kind", Usage: "only objects of `KIND`, such as network; several times for several"},
		&cli.StringSliceFlag{Name: "label", Usage: "only objects that have the label `KEY=VALUE`; several times for all of several"},
		&cli.StringFlag{Name: "owner", Usage: "only objects of the owner with this `UUID`"},
	}
}

// selectionOf reads the flags of selectionFlags.
func selectionOf(c *cli.Context) (s documents.Selection, err error) {
	for _, name := range c.StringSlice("kind") {
		kind, err := log.ParseKind(name)
		if err != nil {
			return s, term.Usagef("--kind: %w", err)
		}
		if ok, why := documents.Declared(kind); !ok {
			return s, term.Usagef("--kind %s: documents do not declare it: %s", name, why)
		}
		s.Kinds = append(s.Kinds, kind)
	}
	for _, text := range c.StringSlice("label") {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return s, term.Usagef("--label %q: want KEY=VALUE", text)
		}
		if s.Labels == nil {
			s.Labels = make(map[string]string)
		}
		s.Labels[key] = value
	}
	if text := c.String("owner"); text != "" {
		if s.Owner, err = log.ParseUUID(text); err != nil {
			return s, term.Usagef("--owner: %w", err)
		}
	}
	return s, nil
}

func runExport(c *cli.Context, read StateAt) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	selection, err := selectionOf(c)
	if err != nil {
		return err
	}
	state, seq, err := read(c)
	if err != nil {
		return err
	}
	docs := documents.Export(state, selection)
	if err := writeDocuments(c, docs); err != nil {
		return err
	}
	if n := documents.Withheld(state, selection); n > 0 {
		output.Printf(c.App.ErrWriter, "left out of %d VMs: %s, which may hold secrets; an apply leaves them as they are\n", n, strings.Join(documents.Secrets, " and "))
	}
	if c.String("file") != "" {
		output.Printf(c.App.ErrWriter, "%d documents, of the state after entry %d\n", len(docs), seq)
	}
	return nil
}

// writeDocuments writes documents to where --file says.
func writeDocuments(c *cli.Context, docs []documents.Document) error {
	form, path := c.String("output"), c.String("file")
	info, err := os.Stat(path)
	isFolder := strings.HasSuffix(path, "/") || err == nil && info.IsDir()
	switch {
	case path == "" || path == source.Standard:
		text, err := textOf(form, docs)
		if err != nil {
			return err
		}
		return output.Escaped(c.App.Writer, text)
	case !isFolder:
		return replaceFile(path, form, docs)
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	for _, kind := range documents.Kinds() {
		var of []documents.Document
		for _, doc := range docs {
			if doc.Kind == kind {
				of = append(of, doc)
			}
		}
		name := filepath.Join(path, kind.String()+"."+form)
		if len(of) > 0 {
			if err := replaceFile(name, form, of); err != nil {
				return err
			}
		} else if _, err := os.Stat(name); err == nil {
			output.Printf(c.App.ErrWriter, "%s stays as it is: there is no %s to write; delete the file if it is an older export\n", name, kind.Describe().Noun)
		}
	}
	return nil
}

// textOf is the text of documents, in which values are quoted that a reader could take for
// something else.
func textOf(form string, docs []documents.Document) (b []byte, err error) {
	for i := range docs {
		if form != "json" {
			b = source.AppendYAML(b, &docs[i])
		} else if b, err = source.AppendJSON(b, &docs[i]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// replaceFile writes a file whole: a reader sees the old one or the new one.
func replaceFile(name, form string, docs []documents.Document) error {
	text, err := textOf(form, docs)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(0o644), f.Close(), os.WriteFile(f.Name(), text, 0o644))
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
